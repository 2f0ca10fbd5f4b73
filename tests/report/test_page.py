import json
import re
import sys

import pytest

from facade.report import charts, facts, panels, theme
from facade.report.page import report
from facade.report.verdicts import verdicts
from facade.runs.history import load_all
from handmade import write_run
from report.conftest import of, two_rounds, write_large_run
from surroundings import loaded_by


@pytest.fixture(scope="module")
def runs(digits_runs):
    return load_all([digits_runs])


@pytest.fixture(scope="module")
def page(runs):
    return report(runs)


def test_the_page_has_a_verdict_a_table_charts_configuration_environment_and_a_way_to_do_it_again(page):
    headings = ["Verdict", "All numbers", "Accuracy per cluster over rounds", "Fair accuracy over rounds"]
    headings += ["Are the clusters treated alike?", "Accuracy for bytes", "Who chose which head: facade"]
    headings += ["Who gains, who loses against training alone", "Configuration", "Environment", "How to reproduce"]
    for heading in headings:
        assert f">{heading}</h" in page, heading
    assert "facade sweep FILE.toml --seeds 1,2" in page


def test_the_table_shows_every_experiment_with_intervals(page):
    table = re.search(r'<table id="numbers">.*?</table>', page, re.S)[0]
    assert table.count("<tr") == 1 + 3
    assert "<small>[" in table
    assert table.count('<tr class="ours">') == 1
    assert re.search(r'<tr class="ours">\s*<td class="label name">facade</td>', table)


def test_nothing_on_the_page_has_an_address_elsewhere(page):
    outside = page[: page.index('<script type="application/json"')]
    assert not re.findall(r'(?:src|href)="(?!data:)[^"]*"', outside)
    assert "default-src 'none'" in outside


def test_text_from_a_run_cannot_become_markup(tmp_path):
    path = two_rounds(tmp_path / "run", [9, 9, 9, 5], 'name="<script>alert(1)<script>"')
    assert "<script>alert" not in report(load_all([path]))


def test_experiments_are_called_by_what_sets_those_of_one_algorithm_apart(tmp_path):
    paths = [
        two_rounds(tmp_path / str(number), [9, 9, 9, 8], *settings)
        for number, settings in enumerate(
            [
                ("algorithm.name=facade", "algorithm.warmup=5", "training.lr=0.01"),
                ("algorithm.name=facade", "algorithm.warmup=0", "training.lr=0.01"),
                ("algorithm.name=el", "training.lr=0.05"),
            ]
        )
    ]
    assert [subject.label for subject in of(*paths).subjects] == ["facade warmup=5", "facade warmup=0", "el"]


def test_an_experiment_looks_alike_in_panels_that_show_it_with_others_and_alone():
    every = ["el", "facade", "facade seeded"]
    together, alone = (
        json.dumps([charts.colour(names, every).to_dict()["scale"], charts.shape(names, every).to_dict()["scale"]])
        for names in (every, ["facade seeded"])
    )
    assert together == alone
    assert charts.shape(["facade seeded"], every).to_dict()["legend"]["values"] == ["facade seeded"]
    assert charts.colour(["el"]).to_dict()["scale"]["domain"] == ["el"]


def test_colours_and_marks_stand_in_one_legend():
    names = ["facade warmup=5", "facade warmup=0", "el", "mine"]  # the second takes a colour that is left
    colour, shape = charts.colour(names).to_dict(), charts.shape(names).to_dict()
    assert colour["scale"]["domain"] == shape["scale"]["domain"] == names
    assert len(set(colour["scale"]["range"])) == 4


@pytest.mark.parametrize(("longest", "columns"), [(2, 4), (18, 2), (60, 1), (300, 1)])
def test_long_names_stand_below_each_other(longest, columns):
    assert theme.legend_columns(["el", "x" * longest]) == columns


def test_training_alone_counts_with_its_best_learning_rate(tmp_path):
    paths = [
        two_rounds(tmp_path / f"{lr}", [right] * 4, "algorithm.name=local", f"training.lr={lr}")
        for lr, right in {0.001: 2, 0.05: 8}.items()
    ]
    assert facts.accuracy_alone(of(*paths)) == pytest.approx(80)


def test_the_page_says_that_batches_are_larger_than_what_nodes_hold(tmp_path):
    runs = load_all([two_rounds(tmp_path / "a", [9, 9, 9, 8], "training.batch=6", choices=[0, 0, 0, 1])])
    assert "Mind: training.batch = 6 is more than the 5 samples of node 0" in report(runs)


def test_two_algorithms_with_one_class_name_are_called_by_their_whole_names(tmp_path, monkeypatch):
    for module in ("ward_a", "ward_b"):
        (tmp_path / f"{module}.py").write_text("from facade.algorithms.el import EL\nclass Mine(EL):\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    names = ["ward_a:Mine", "ward_b:Mine", "el"]
    paths = [two_rounds(tmp_path / str(i), [9] * 4, f"algorithm.name={name}") for i, name in enumerate(names)]
    assert [subject.label for subject in of(*paths).subjects] == names
    assert [subject.label for subject in of(paths[0], paths[2]).subjects] == ["Mine", "el"]


def test_a_label_names_the_graph_and_does_not_list_it(tmp_path):
    path = " ".join(f"{a}-{b}" for a in range(4) for b in range(4) if a != b)
    given = ("algorithm.name=el", "topology.name=edges", f"topology.edges='{path} {path}'")
    paths = [two_rounds(tmp_path / "a", [9] * 4, "algorithm.name=el"), two_rounds(tmp_path / "b", [9] * 4, *given)]
    ring, edges = (subject.label for subject in of(*paths).subjects)
    assert ring.startswith("el topology=regular")
    assert edges.startswith("el topology=edges")
    assert "edges=0-1 0-2" in edges
    assert len(edges) < 100
    sentences = " ".join(verdicts(of(*paths)))
    assert "differ in topology.name" in sentences
    assert path not in sentences


def test_of_many_rounds_the_last_one_is_drawn(tmp_path):
    rounds = [(1, [0, 0, 0, 0])] * 400 + [(1, [0, 0, 0, 1])]
    comparison = of(write_run(tmp_path / "run", rounds, {}, [9] * 4))
    drawn = facts.head_shares(comparison, comparison.runs[0])
    assert len({row["round"] for row in drawn}) < 250
    last = [row for row in drawn if row["round"] == 401 and row["share"] == 1]
    assert [(row["cluster"], row["head"]) for row in last] == [("majority", "head 0"), ("minority", "head 1")]


def test_the_page_says_what_must_be_known_of_the_data(tmp_path):
    path = two_rounds(tmp_path / "run", [9, 9, 9, 5])
    facts = json.loads((path / "federation.json").read_text())
    (path / "federation.json").write_text(json.dumps(facts | {"notes": ["6 and 9 look alike"], "overlapping": True}))
    page = report(load_all([path]))
    assert "Mind: 6 and 9 look alike." in page
    assert "Mind: nodes hold copies of the same images" in page


def test_nodes_stand_in_the_order_of_their_clusters(tmp_path):
    rounds = [(1000, [0, 1, 0, 1])] * 2
    path = write_run(tmp_path / "run", rounds, {}, [9, 8, 9, 8], "data.clusters=2:2", cluster=(0, 1, 0, 1))
    (figure,) = charts.heads(of(path))
    assert figure.panels[0].chart.to_dict(validate=False)["encoding"]["y"]["sort"] == [0, 2, 1, 3]


def test_a_figure_in_a_file_says_how_to_read_it(runs):
    (comparison,) = facts.comparisons(runs)
    figure = charts.of_comparison(comparison)[0]
    assert " ".join(figure.spec()["title"]["subtitle"]) == figure.caption


def test_gains_are_measured_node_by_node_against_local(tmp_path):
    ours = two_rounds(tmp_path / "a", [9, 9, 9, 4], "algorithm.name=el")
    alone = two_rounds(tmp_path / "b", [7, 7, 7, 7], "algorithm.name=local")
    rows = facts.node_gains(of(ours, alone))
    assert [(row["who"], row["cluster"], row["gain"]) for row in rows] == [
        ("el", "majority", 20.0), ("el", "majority", 20.0), ("el", "majority", 20.0), ("el", "minority", -30.0),
    ]  # fmt: skip


def test_nobody_on_the_front_is_beaten_in_everything(tmp_path):
    ours = two_rounds(tmp_path / "a", [9, 9, 9, 8], "algorithm.name=facade", choices=[0, 0, 0, 1])
    beaten = two_rounds(tmp_path / "b", [9, 9, 9, 2], "algorithm.name=el")
    front = {row["who"]: row["front"] for row in facts.prices(of(ours, beaten))}
    assert front == {"facade": True, "el": False}


def test_the_strip_of_a_node_covers_every_round_once(runs):
    comparison = facts.comparisons(runs)[0]
    run = next(run for run in runs if run.algorithm == "facade")
    for node in range(4):
        stretches = [row for row in facts.head_strips(comparison, run) if row["node"] == node]
        assert [row["from"] for row in stretches] == [1, *(row["to"] for row in stretches[:-1])]
        assert stretches[-1]["to"] == len(run.heard) + 1


def test_one_federation_without_clusters_makes_a_page_too(tmp_path):
    path = write_run(
        tmp_path / "run", [(10, None)], {1: [9, 8]}, [9, 8], 'data.clusters="2"', "algorithm.name=el", cluster=None
    )
    assert "el gives the worst site 80.0\u00a0% (node 1)" in report(load_all([path]))


def test_two_settings_make_two_comparisons(tmp_path):
    paths = [
        two_rounds(tmp_path / skew, [9, 9, 9, 5], f"data.skew={skew}", "algorithm.name=el")
        for skew in ("blur", "rotate")
    ]
    assert [c.title for c in facts.comparisons(load_all(paths))] == [
        "digits 3:1, skew blur, model mlp", "digits 3:1, skew rotate, model mlp",
    ]  # fmt: skip


def test_images_of_a_source_that_is_not_public_are_shown_only_when_asked(tmp_path, page):
    assert "data:image/png" in page
    private = two_rounds(tmp_path / "run", [9, 9, 9, 5], "data.source=npz", "data.path=none.npz", "algorithm.name=el")
    assert "data:image/png" not in report(load_all([private]))
    assert "No sample images" in report(load_all([private]), show_samples=True)


def test_a_thousand_nodes_and_two_hundred_rounds_stay_small(tmp_path):
    for algorithm in ("facade", "local"):
        write_large_run(tmp_path / algorithm, algorithm, 1000, 200, 60)
    html = report(load_all([tmp_path]))
    assert len(html) < 3e6
    assert "Every node" not in html
    assert "Nodes counted in bins" in html


@pytest.mark.parametrize(("format", "beginning"), [("svg", b"<svg"), ("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_figures_are_written_as_files(tmp_path, command, digits_runs, format, beginning):
    ended = command(
        "report", digits_runs, "--out", tmp_path / "r.html", "--figures", tmp_path / "f", "--format", format
    )
    assert ended.code == 0, ended.err
    assert {path.stem for path in (tmp_path / "f").iterdir()} >= {
        "accuracy",
        "fair",
        "odds",
        "traffic",
        "gains",
        "pareto",
    }
    assert all(path.read_bytes().startswith(beginning) for path in (tmp_path / "f").iterdir())


def test_an_unknown_format_is_refused_in_one_sentence(tmp_path, command, digits_runs):
    ended = command("report", digits_runs, "--out", tmp_path / "r.html", "--format", "gif")
    assert ended.code == 2
    assert "expected one of pdf, svg, png" in ended.err


def test_without_the_extra_a_sentence_says_how_to_get_it(tmp_path, command, digits_runs, monkeypatch):
    monkeypatch.setitem(sys.modules, "altair", None)
    ended = command("report", digits_runs, "--out", tmp_path / "r.html")
    assert ended.code == 2
    assert "pip install 'facade-dl[report]'" in ended.err


def test_a_sweep_ends_with_a_report(tmp_path, command, digits_runs):
    ended = command("sweep", digits_runs / "el-1" / "experiment.toml", "--seeds", "1", "--out", tmp_path / "sweep")
    assert ended.code == 0, ended.err
    assert "Report:" in ended.out
    assert (tmp_path / "sweep" / "report.html").stat().st_size > 500_000


def test_every_chart_is_valid_vega_lite(runs):
    from facade.report import charts

    for figure in charts.of_comparison(facts.comparisons(runs)[0]):
        for panel in figure.panels:
            panel.chart.to_dict(validate=True)


def test_experiments_get_colours_of_their_own():
    given = theme.colours(["facade", "el", "facade heads=3", "dac"])
    assert given["facade"] == theme.ALGORITHM_COLOURS["facade"]
    assert len(set(given.values())) == 4


def test_importing_the_library_loads_no_plotting():
    assert loaded_by("import facade, facade.cli", "altair", "vl_convert", "jinja2") == []
    assert panels.FORMATS == ("pdf", "svg", "png")


def test_where_nothing_can_be_drawn_a_sweep_says_how_to_get_its_report(tmp_path, command, digits_runs, monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    ended = command("sweep", digits_runs / "el-1" / "experiment.toml", "--seeds", "1", "--out", tmp_path / "sweep")
    assert ended.code == 0, ended.err
    assert "pip install 'facade-dl[report]', then: facade report" in ended.err
    assert not (tmp_path / "sweep" / "report.html").exists()


def test_a_page_that_cannot_be_written_is_one_sentence(tmp_path, command, digits_runs):
    (tmp_path / "taken").touch()
    ended = command("report", digits_runs / "el-1", "--out", tmp_path / "taken" / "page.html")
    assert ended.code == 1
    assert ended.err.startswith(f"error: {tmp_path}/taken/page.html could not be written")
    assert ended.err.count("\n") == 1
