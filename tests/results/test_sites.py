"""Federations of sites of which nobody knows who is alike: what is said of them in tables, gates and on the screen."""

import io
import json

import numpy as np
import pytest
from rich.console import Console

from facade import Experiment, Federation, run
from facade.analysis.differences import Seeded, difference, leading
from facade.analysis.site_table import WORST, site_tables
from facade.analysis.sites import groups_in_words, site_numbers, sites_of
from facade.analysis.statistics import SEEDS, TEST_NOISE, Estimate, Interval
from facade.analysis.table import tabulate
from facade.cli import display
from facade.cli.progress import RunProgress
from facade.data.errors import DataError
from facade.export.package import export
from facade.runs.federation_facts import differing_facts
from facade.runs.history import load, load_all
from facade.runs.run_order import in_order, keep_order
from handmade import write_sites
from surroundings import csv_lines

NAMES = ["Basel", "Bern", "Chur", "Genf"]


def of_seeds(base, algorithm, answers, **fields):
    """Runs of one algorithm, with seeds 1, 2, ...: right answers of ten per class."""
    return [
        write_sites(base / f"{algorithm}{seed}", right, f"algorithm.name={algorithm}", f"seed={seed}", **fields)
        for seed, right in enumerate(answers, 1)
    ]


@pytest.fixture
def compared(tmp_path):
    """Three algorithms with two seeds: Genf is different, and EL serves it badly."""
    base = tmp_path / "runs"
    of_seeds(base, "local", [[6, 7, 6, 7], [7, 7, 6, 6]])
    of_seeds(base, "el", [[9, 9, 8, 3], [9, 8, 8, 4]])
    of_seeds(base, "facade", [[9, 9, 8, 8], [9, 9, 8, 9]], choices=[0, 0, 0, 1])
    return base


# Numbers


def facade_sites(base):
    runs = load_all([base])
    return sites_of([run for run in runs if run.algorithm == "facade"], runs)


def test_the_worst_site_is_the_one_with_the_lowest_mean_over_seeds(compared):
    sites = facade_sites(compared)
    assert (sites.names, sites.nodes) == (NAMES, [0, 1, 2, 3])
    numbers = site_numbers(sites)
    assert sites.names[sites.worst] == "Chur"
    assert numbers["worst_site"].points == [0.8, 0.8], "not the lowest of every seed, which no site need have"
    assert numbers["gap_between_sites"].mean == pytest.approx(0.1)


def test_gains_are_paired_seed_by_seed_with_those_of_training_alone_and_of_el(compared):
    sites = facade_sites(compared)
    alone, el = (sites.gains[name].of(3) for name in ("local", "el"))
    assert alone.points == pytest.approx([0.1, 0.3])
    assert el.points == pytest.approx([0.5, 0.5])
    assert alone.interval.accounts_for == SEEDS
    assert alone.interval[:2] == (-1.0, 1.0), "Student's t with one degree of freedom reaches further than a gain can"
    assert el.interval[:2] == pytest.approx((0.5, 0.5))
    assert sites.names[sites.least_gaining("el")] == "Basel"


def el_beside_local(base, el, local):
    """The sites of EL's run, beside training alone; each is given right answers per site."""
    paths = [
        write_sites(base / name, right, f"algorithm.name={name}") for name, right in {"el": el, "local": local}.items()
    ]
    runs = load_all(paths)
    return sites_of(runs[:1], runs)


def test_of_one_seed_a_sites_interval_comes_from_its_own_test_counts(tmp_path):
    sites = el_beside_local(tmp_path, [8, 5, 10, 8], [5, 5, 5, 8])
    for site, share in enumerate([0.8, 0.5]):
        interval = sites.values.of(site).interval
        assert interval.accounts_for == TEST_NOISE
        assert interval.high - interval.low == pytest.approx(2 * 1.96 * (share * (1 - share) / 20) ** 0.5, rel=0.15)
    gain = sites.gains["local"].of(0).interval
    assert gain.high - gain.low == pytest.approx(2 * 1.96 * (0.16 / 20 + 0.25 / 20) ** 0.5, rel=0.15)
    assert sites.clear("local") == (["Basel", "Chur"], [])
    assert "el" not in sites.gains, "an algorithm gains nothing over itself"


def test_right_answers_to_a_few_samples_are_no_certainty(tmp_path):
    sites = el_beside_local(tmp_path, [10, 10, 0, 9], [9, 10, 1, 10])
    low, high, _ = sites.values.of(0).interval
    assert (low, high) == (pytest.approx(0.884, abs=0.01), 1.0), "Jeffreys' interval for 20 of 20"
    assert sites.values.of(2).interval[:2] == (0.0, pytest.approx(0.116, abs=0.01))
    assert sites.clear("local") == ([], []), "by two samples nobody is clearly better or worse off"


def test_sites_that_share_a_test_set_are_drawn_by_themselves(tmp_path):
    path = write_sites(tmp_path / "run", [8, 6, 8, 8])
    facts = json.loads((path / "federation.json").read_text())
    (path / "federation.json").write_text(json.dumps(facts | {"test_of": [0, 0, 0, 0]}))
    gap = site_numbers(sites_of([load(path)]))["gap_between_sites"]
    assert gap.mean == pytest.approx(0.2)
    assert gap.interval.high - gap.interval.low > 0.2


def test_groups_are_the_same_whatever_number_their_head_has(tmp_path):
    paths = [
        write_sites(tmp_path / str(seed), [9] * 4, f"seed={seed}", choices=choices)
        for seed, choices in {1: [0, 0, 1, 1], 2: [1, 1, 0, 0]}.items()
    ]
    sites = sites_of(load_all(paths))
    assert groups_in_words(sites) == (
        "Groups found by heads, the same with all 2 seeds: head 0: Basel, Bern; head 1: Chur, Genf."
    )
    paths.append(write_sites(tmp_path / "3", [9] * 4, "seed=3", choices=[0, 0, 0, 0]))
    words = groups_in_words(sites_of(load_all(paths)))
    assert (
        "with 2 of 3 seeds: head 0: Basel, Bern; head 1: Chur, Genf. The other seeds found 1 other division." in words
    )
    assert groups_in_words(sites_of(load_all(paths[2:]))) == "Groups found by heads: all sites share head 0."


def test_differences_are_paired_over_common_seeds_or_come_from_test_noise():
    one, other = Seeded([1, 2, 3], Estimate([0.7, 0.8, 0.9])), Seeded([1, 2], Estimate([0.6, 0.7]))
    found = difference(one, other)
    assert (found.by, found.seeds, found.told_apart) == (pytest.approx(0.1), 2, True)
    single = [Seeded([1], Estimate([mean], Interval(mean - 0.03, mean + 0.04, TEST_NOISE))) for mean in (0.8, 0.9)]
    found = difference(*single)
    assert found.interval[:2] == pytest.approx((-0.1 - 0.04 * 2**0.5, -0.1 + 0.04 * 2**0.5))
    assert not difference(single[0], one).told_apart, "one seed and several have no interval in common"


def test_the_best_leads_with_those_that_cannot_be_told_from_it():
    def number(mean, reach=0.04):
        return Seeded([1], Estimate([mean], Interval(mean - reach, mean + reach, TEST_NOISE)))

    numbers = {0: number(0.84), 1: number(0.61), 2: number(0.88), 3: number(0.86)}
    assert leading(numbers, higher=True) == {0, 2, 3}
    assert leading(numbers, higher=False) == {1}
    assert leading({0: number(0.84), 2: number(0.88)}, higher=True) == set(), "nobody stands out"
    assert leading({0: Seeded([1, 2], Estimate([0.8, None])), 1: number(0.5)}, higher=True) == set()


# Tables


def test_the_table_speaks_of_sites_and_of_no_cluster(command, compared):
    ended = command("show", compared)
    assert ended.code == 0, ended.err
    text = " ".join(ended.out.split())
    assert "cluster" not in text
    for words in ("gap between", "Sites: accuracy in percent, gains in points", "Genf", "facade over"):
        assert words in text, words
    assert "Groups found by heads, the same with all 2 seeds: head 0: Basel, Bern, Chur; head 1: Genf." in text


def test_markdown_csv_and_json_have_every_site(command, compared):
    markdown = command("show", compared, "--markdown").out
    assert "| Genf | 5 | 20 | 35.0 [0.0, 98.5] | 85.0 [21.5, 100.0] | 65.0 [1.5, 100.0] |" in markdown
    assert "| **facade** | 2 | **80.00** |" in markdown, "FACADE's line is marked, and what leads"
    lines = {(line["algorithm"], line["number"]): line for line in csv_lines(command("show", compared, "--csv").out)}
    assert lines["facade", "gain_over_el:Genf"]["values"] == "0.5 0.5"
    facts = json.loads(command("show", compared, "--json").out)["experiments"]
    facade = next(line for line in facts if line["label"]["algorithm"] == "facade")
    assert facade["numbers"]["accuracy:Genf"]["values"] == [0.8, 0.9]
    assert facade["groups"] == [{"groups": [NAMES[:3], NAMES[3:]], "heads": [0, 1], "seeds": [1, 2]}]


def test_columns_can_be_chosen_in_any_order(command, compared):
    text = command("show", compared, "--markdown", "--columns", "all, worst_site,worst_head").out
    assert text.startswith("| algorithm | seeds | mean of sites | worst site | worst head's acc. |")
    assert "Genf" not in text, "who chooses numbers gets these"
    names = {line["number"] for line in csv_lines(command("show", compared, "--csv", "--columns", "bytes_final").out)}
    assert names == {"bytes_final"}
    assert "| bytes final |\n" in command("show", compared, "--markdown", "--columns", "bytes_final").out
    ended = command("show", compared, "--columns", "worst_sight")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "unknown column 'worst_sight'; did you mean 'worst_site'?" in ended.err


def test_of_very_many_sites_the_worst_are_listed(tmp_path):
    right = [9] * 100
    right[70] = 2
    path = write_sites(tmp_path / "run", right, "algorithm.name=el", names=[f"site {i}" for i in range(100)])
    (table,) = site_tables(tabulate([load(path)]))
    assert len(table.names) == WORST
    assert table.names[0] == "site 70"
    assert table.notes == ["The 16 worst served of 100 sites."]


def test_a_site_that_attacks_in_one_experiment_has_no_number_there(tmp_path):
    whole = write_sites(tmp_path / "whole", [9, 9, 8, 8])
    attacked = write_sites(tmp_path / "attacked", [9, 9, 8, 8], "attack.nodes=[1]", "attack.kind=flip-signs")
    (table,) = site_tables(tabulate(load_all([whole, attacked])))
    assert table.names == NAMES
    accuracies = [[cell[0] for cell in column.cells] for column in table.columns[2:4]]
    assert accuracies == [["90.0", "90.0", "80.0", "80.0"], ["90.0", "-", "80.0", "80.0"]]


def test_what_is_swept_now_comes_before_what_was(tmp_path):
    for name in "abcd":
        (tmp_path / name).mkdir()

    def names():
        return [path.name for path in in_order(tmp_path, tmp_path.iterdir()) if path.is_dir()]

    keep_order(tmp_path, ["c", "b"])
    assert names() == ["c", "b", "a", "d"]
    keep_order(tmp_path, ["d", "b"])
    assert names() == ["d", "b", "c", "a"]
    (tmp_path / "order.txt").write_bytes(b"\xff")
    assert names() == ["a", "b", "c", "d"]


# The gate


GATE = {
    "min_site = 0.8": (0, "kept, 0.8000; the worst site is Chur"),
    "min_site = 0.81": (1, "broken, 0.8000; the worst site is Chur"),
    "max_gap_between_sites = 0.11": (0, "kept, 0.1000 [0.1000, 0.1000] (seeds); the best is Basel, the worst Chur"),
    "max_gap_between_sites = 0.09": (1, "broken, 0.1000"),
    "min_gain = 0.15": (0, "kept, 0.2000"),
    "min_gain = 0.25": (1, "broken, 0.2000"),
}


@pytest.mark.parametrize("clause", GATE)
def test_clauses_about_sites_need_no_clusters_and_name_the_sites(command, compared, tmp_path, clause):
    (tmp_path / "fair.toml").write_text(clause)
    runs = [path for path in compared.iterdir() if path.name.startswith("facade")]
    against = [part for path in compared.glob("local*") for part in ("--against", path)]
    ended = command("check", *sorted(runs), "--contract", tmp_path / "fair.toml", *against)
    code, words = GATE[clause]
    assert ended.code == code, ended.out + ended.err
    said = ended.out.replace(" [0.8000, 0.8000] (seeds)", "").replace(", but the limit lies inside the interval", "")
    assert f"{clause}: {words}" in said
    assert ("gains least" in ended.out) == clause.startswith("min_gain")


def test_the_gain_of_sites_needs_runs_of_training_alone(command, compared, tmp_path):
    (tmp_path / "fair.toml").write_text("min_gain = 0\nmin_site = 0.1")
    ended = command("check", compared / "facade1", "--contract", tmp_path / "fair.toml")
    assert ended.code == 2
    assert "min_gain = 0: not judged; it needs runs of 'local'" in ended.out


# A run from its data to its model card


def hospitals(names=None, **more):
    """Four nodes that bring their own data; the last one's is upside down."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    x, y = (digits.images * 15).astype(np.uint8), digits.target
    parts = [(x[i * 100 : i * 100 + 100], y[i * 100 : i * 100 + 100]) for i in range(4)]
    parts[3] = (parts[3][0][:, ::-1, ::-1], parts[3][1])
    nodes = [(a[:60], b[:60], a[60:], b[60:]) for a, b in parts]
    return Federation.from_nodes(nodes, names=names, **more), nodes


def described(data, algorithm="facade"):
    return Experiment.of(
        {
            "data": data,
            "algorithm": {"name": algorithm, "heads": 2, "seeding": "none", "warmup": 1},
            "topology": {"degree": 2},
            "training": {"rounds": 4, "steps": 2},
            "evaluation": {"every": 2},
            "runtime": {"threads": 1},
        }
    )


@pytest.fixture(scope="module")
def named_run(tmp_path_factory):
    federation, _ = hospitals(NAMES)
    path = tmp_path_factory.mktemp("sites") / "facade"
    return run(described(federation.section), path, federation=federation)


def test_names_are_kept_with_the_run(named_run):
    facts = json.loads((named_run.run_dir / "federation.json").read_text())
    assert facts["sites"] == NAMES
    assert list(named_run.summary["sites"]) == NAMES
    assert min(named_run.summary["sites"].values()) == named_run.summary["worst_node"]
    assert load(named_run.run_dir).sites == NAMES


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["a", "b"], "names has 2 names but there are 4 nodes; give one name per node"),
        (["a", "b", "b", "c"], "names has 'b' more than once; give every node a name of its own"),
        (["a", "b", " ", "c"], "names has ' '; expected a text for every node"),
        (["a", "b", 3, "c"], "names has 3; expected a text for every node"),
    ],
)
def test_names_that_make_no_sense_are_refused(names, sentence):
    with pytest.raises(DataError) as refused:
        hospitals(names)
    assert str(refused.value) == sentence


def test_names_and_unknown_clusters_make_no_other_data(named_run):
    facts = json.loads((named_run.run_dir / "federation.json").read_text())
    assert differing_facts(facts, facts | {"sites": None, "cluster": [0, 0, 0, 0]}) == []
    assert differing_facts(facts, facts | {"cluster": [0, 0, 0, 1]}) == ["cluster"]


def test_the_screen_shows_every_site_and_who_shares_a_head(named_run):
    terminal = io.StringIO()
    display.print_results(Console(file=terminal, width=100), {"facade": named_run})
    text = " ".join(terminal.getvalue().split())
    assert "cluster" not in text
    worst = min(named_run.summary["sites"], key=named_run.summary["sites"].get)
    assert f" {worst} " in text.split("site Basel")[0], "the worst site is named"
    for name, share in named_run.summary["sites"].items():
        assert f"{name} {100 * share:.1f}" in text
    assert "the head each site chose, in the order of the sites" in text


def test_heads_are_said_with_the_sites_that_chose_them():
    summary = {"settled": None, "separated": None, "choice": [0, 1, 0, 1], "heads": {"0": 0.9, "1": 0.8}}
    summary["sites"] = dict.fromkeys(NAMES, 0.5)
    assert display.settlement(summary, [0] * 4, [4]) == (
        "Head 0 serves 2 sites at 90.0%, head 1 serves 2 sites at 80.0%."
        " Head 0 is that of Basel, Chur. Head 1 is that of Bern, Genf."
    )
    without = summary | {"sites": dict.fromkeys(NAMES[1:], 0.5)}
    assert "Head 0 is that of Chur. Head 1 is that of Bern, Genf." in display.settlement(without, [-1, 0, 0, 0], [4])


def test_while_a_run_goes_on_the_worst_site_is_named():
    terminal = io.StringIO()
    with RunProgress(Console(file=terminal, width=120)) as progress:
        progress.start(described({"source": "digits", "clusters": "4"}), 0)
        progress.evaluated(2, {"measured": {"sites": {"Bern": 0.5, "Chur": 0.9}}}, final=False)
    assert "sites  70.0%  worst (Bern)  50.0%" in terminal.getvalue()


def test_the_card_names_sites_and_claims_no_division(named_run, tmp_path, command):
    ended = command("export", named_run.run_dir, "--site", "Genf", "-o", tmp_path / "model")
    assert ended.code == 0, ended.err
    card = (tmp_path / "model" / "README.md").read_text()
    assert "stratified" not in card
    assert "already divided among 4 sites, which of them are alike is not known; 60 training samples per site" in card
    assert "| site Genf | " in card
    assert "cluster" not in card


def test_a_site_that_does_not_exist_has_no_model(named_run, tmp_path, command):
    for arguments, words in {
        ("--site", "Genv"): "unknown site 'Genv'; did you mean 'Genf'?",
        ("--site", "Genf", "--node", "1"): "--site, --node and --head exclude each other",
    }.items():
        ended = command("export", named_run.run_dir, *arguments, "-o", tmp_path / "model")
        assert (ended.code, ended.err.count("\n")) == (2, 1)
        assert words in ended.err


def test_the_card_of_a_natural_source_says_who_has_which_samples(tmp_path):
    federation, _ = hospitals(NAMES, clusters=[0, 0, 0, 1])
    path = tmp_path / "run"
    run(described(federation.section, "el"), path, federation=federation)
    export(path, tmp_path / "model", node=0)
    card = (tmp_path / "model" / "README.md").read_text()
    assert "deployed by sites Basel, Bern, Chur, Genf" in card
    assert "| cluster 1 (site Genf) |" in card
    assert "already divided among 4 sites, in clusters of 3:1" in card


def test_screen_and_report_agree_on_a_file_whose_clusters_nobody_knows(tmp_path, command):
    _, nodes = hospitals()
    x, y, x_test, y_test = (np.concatenate(parts) for parts in zip(*nodes, strict=True))
    owners = {"nodes_train": np.repeat(range(4), 60), "nodes_test": np.repeat(range(4), 40)}
    np.savez(tmp_path / "wards.npz", x_train=x, y_train=y, x_test=x_test, y_test=y_test, **owners)
    fields = {"source": "npz", "root": str(tmp_path), "path": "wards.npz", "skew": "none", "partition": "natural"}
    (tmp_path / "wards.toml").write_text(described(fields | {"clusters": "4"}).toml())
    ended = command("run", tmp_path / "wards.toml", "--out", tmp_path / "run")
    assert ended.code == 0, ended.err
    assert "cluster" not in ended.out + ended.err
    assert "worst" in ended.out
    assert load(tmp_path / "run").cluster is None
    assert command("report", tmp_path / "run", "--out", tmp_path / "r.html").code == 0
    page = (tmp_path / "r.html").read_text()
    assert "npz, 4 sites, model mlp" in page
    assert "of one cluster" not in page
    export(tmp_path / "run", tmp_path / "model", node=0)
    assert "`npz`, in which each of 4 sites has samples of its own" in (tmp_path / "model" / "README.md").read_text()
