import json

import pytest

from facade import run
from facade.analysis.statistics import cost_to, settlement
from facade.analysis.table import cell, tabulate
from facade.errors import RunDirectoryError
from facade.runs.history import load, load_all
from facade.runs.rows import RowsFile
from handmade import write_run
from results.conftest import tiny
from surroundings import csv_lines

QUIET = [(1e6, None)] * 2


@pytest.fixture
def runs(tmp_path):
    base = tmp_path / "runs"
    for name, minority in {"el": 4, "local": 6}.items():
        for seed in (1, 2):
            settings = (f"algorithm.name={name}", f"seed={seed}")
            write_run(base / f"{name}{seed}", QUIET, {1: [9, 9, 9, 9]}, [8, 8, 8, minority + seed], *settings)
    return base


def test_runs_that_differ_only_in_their_seed_make_one_line(command, runs):
    ended = command("show", runs)
    assert ended.code == 0, ended.err
    assert ended.err == ""
    assert "80.00" in ended.out
    assert "55.00 ± 5.00" in ended.out, "the minority of el: 50 and 60 percent"
    assert "[0.00, 100.00]" in ended.out, "Student t with one degree of freedom, as far as it can be"
    assert "final = models after the final exchange; highest = best of all evaluations" in " ".join(ended.out.split())
    assert "test-set noise only" not in ended.out


def test_a_single_run_says_what_its_interval_is(command, runs):
    assert "one seed: [95 % interval, test-set noise only]" in " ".join(command("show", runs / "el1").out.split())


def test_the_json_has_every_seeds_values(command, runs):
    lines = json.loads(command("show", runs, "--json", "--target", "0.72").out)["experiments"]
    el = next(line for line in lines if line["label"] == {"algorithm": "el"})
    assert el["seeds"] == [1, 2]
    assert el["numbers"]["cluster_1"]["values"] == pytest.approx([0.5, 0.6])
    assert el["numbers"]["worst_gain"]["values"] == pytest.approx([-0.2, -0.2]), "against local, seed by seed"
    assert el["numbers"]["bytes_to_target"]["mean"] == 1e6
    assert el["numbers"]["highest_fair_accuracy"]["mean"] > el["numbers"]["fair_accuracy"]["mean"]


def test_a_target_that_nobody_reached_has_its_columns(command, runs):
    markdown = command("show", runs, "--markdown", "--target", "0.995").out
    assert "| rounds to 99.5% | MB to 99.5% |" in markdown
    assert "| - | - |" in markdown


def test_csv_markdown_and_latex_say_the_same(command, runs):
    lines = csv_lines(command("show", runs, "--csv").out)
    minority = next(line for line in lines if line["algorithm"] == "el" and line["number"] == "cluster_1")
    assert (float(minority["mean"]), float(minority["population_std"])) == pytest.approx((0.55, 0.05))
    assert minority["interval"] == "seeds"
    markdown = command("show", runs, "--markdown").out
    assert "| el | 2 | 80.00 | 55.00 ± 5.00 [0.00, 100.00] |" in markdown
    latex = command("show", runs, "--latex").out
    assert r"el & 2 & 80.00 & 55.00 $\pm$ 5.00" in latex
    assert r"\begin{tabular}{ll" in latex


def test_two_formats_at_once_are_refused(command, runs):
    ended = command("show", runs, "--csv", "--json")
    assert ended.code == 2
    assert "exclude each other" in ended.err


def test_different_experiments_are_lines_of_their_own_named_by_what_differs(command, runs):
    write_run(runs / "other", QUIET, {}, [5, 5, 5, 5], "algorithm.name=el", "training.lr=0.5", "seed=1")
    lines = json.loads(command("show", runs, "--json").out)["experiments"]
    labels = [line["label"] for line in lines]
    assert {"algorithm": "el", "training.lr": "0.5"} in labels
    assert {"algorithm": "el", "training.lr": "0.05"} in labels
    assert len(labels) == 3


def test_settings_of_training_that_algorithms_were_not_given_alike_are_named(command, runs):
    def said():
        return " ".join(command("show", runs).out.split())

    assert "differ:" not in said()
    write_run(runs / "quick", QUIET, {}, [5] * 4, "algorithm.name=el", "training.lr=0.5", "training.batch=4")
    assert "Values of training.batch differ: el 8 and 4, local 8. Learning rates differ: el 0.05 and 0.5, loc" in said()
    write_run(runs / "alone", QUIET, {}, [5] * 4, "algorithm.name=local", "training.lr=0.5", "training.batch=4")
    assert "differ:" not in said(), "both were tried with both"


def test_a_column_of_names_is_headed_by_what_they_name(command, tmp_path):
    for name, lr in {"ring": 0.1, "regular": 0.2}.items():
        write_run(tmp_path / name, QUIET, {}, [5] * 4, f"topology.name={name}", f"training.lr={lr}")
    headings = " ".join(command("show", tmp_path).out.splitlines()[:2]).split()
    assert {"topology", "lr"} <= set(headings)
    assert "name" not in headings


def test_fields_of_one_algorithm_are_no_difference_to_another(command, runs):
    choices = [(1, [0, 0, 0, 1])] * 2
    write_run(runs / "facade", choices, {}, [5] * 4, "algorithm.name=facade", "algorithm.heads=3")
    labels = [line["label"] for line in json.loads(command("show", runs, "--json").out)["experiments"]]
    assert labels == [{"algorithm": name} for name in ("el", "facade", "local")]


def test_heads_are_shown_with_the_settling_round(command, runs):
    choices = [(1, [0, 0, 0, 0]), (1, [0, 0, 0, 1])]
    write_run(runs / "facade", choices, {}, [5] * 4, "algorithm.heads=3")
    text = command("show", runs / "facade", "--heads").out
    assert "settled from round 2 on; unused heads: 2" in text
    (line,) = json.loads(command("show", runs / "facade", "--json").out)["experiments"]
    shares = [[[1, 0, 0], [1, 0, 0]], [[1, 0, 0], [0, 1, 0]]]
    assert line["settlements"] == [{"shares": shares, "settling_round": 2, "unused": [2], "shared": []}]
    assert command("show", runs / "facade", "--json", "--heads").code == 2
    assert "…" not in text
    assert text.splitlines()[-1].split() == ["2", "100", "0", "0", "0", "100", "0"]


@pytest.mark.parametrize(("word", "choices"), [("yes", [0, 0, 0, 1]), ("apart", [0, 0, 2, 1]), ("no", [0, 0, 1, 1])])
def test_heads_that_keep_clusters_apart_are_told_from_shared_ones(tmp_path, word, choices):
    fields = ["algorithm.heads=3", "algorithm.warmup=0", "algorithm.seeding=none"]
    path = write_run(tmp_path / "run", [(1e6, choices)] * 2, {2: [9] * 4}, [9] * 4, *fields)
    table = tabulate([load(path)])
    (column,) = (column for column in table.columns if column.name == "settled")
    assert cell(column, table.lines[0]) == (word, "")


def test_a_run_older_than_a_setting_counts_with_its_default(tmp_path):
    paths = [write_run(tmp_path / str(seed), QUIET, {}, [9] * 4, f"seed={seed}") for seed in (1, 2)]
    file = paths[1] / "experiment.toml"
    file.write_text("".join(line for line in file.read_text().splitlines(True) if not line.startswith("revival")))
    (line,) = tabulate(load_all(paths)).lines
    assert line.seeds == [1, 2]


def test_a_finished_run_whose_rows_are_damaged_is_not_told_to_continue(tmp_path):
    path = write_run(tmp_path / "run", QUIET, {}, [9] * 4)
    (path / "result.json").write_text("{}")
    rows = (path / "rows.jsonl").read_text().splitlines(True)
    (path / "rows.jsonl").write_text("".join(rows[:-1]))
    pattern = r"was finished, but its rows are damaged: .* compute the run again: facade run .*experiment.toml --out"
    with pytest.warns(UserWarning, match="final rows of 3 of 4 nodes"), pytest.raises(RunDirectoryError, match=pattern):
        load_all([path])


def test_heads_chosen_on_test_data_are_said(command, tmp_path):
    write_run(tmp_path / "run", [(1, [0, 0, 0, 1])] * 2, {}, [9] * 4, "evaluation.head=oracle")
    ended = command("show", tmp_path / "run")
    assert "tested with the heads best on the test data" in " ".join(ended.out.split())


def test_the_prior_that_counts_is_said_and_the_others_accuracies_are_among_the_numbers(command, tmp_path):
    settings = ("training.loss=balanced", "data.partition=dirichlet", "evaluation.prior=own")
    summary = run(tiny(*settings), tmp_path / "run").summary
    words = " ".join(command("show", tmp_path / "run").out.split())
    assert "balanced loss, prior = own: predicted with every node's own label shares added" in words
    (experiment,) = json.loads(command("show", tmp_path / "run", "--json").out)["experiments"]
    assert experiment["prior"] == "own"
    shares = [experiment["numbers"][f"flat_{name}"]["mean"] for name in ("cluster_0", "cluster_1", "all")]
    assert shares == [*summary["flat_clusters"], summary["flat_all"]]
    ended = " ".join(command("run", tmp_path / "run" / "experiment.toml", "--out", tmp_path / "again").out.split())
    majority = f"{100 * summary['flat_clusters'][0]:.1f}"
    assert f"(prior = own); as if all classes were equally frequent: majority {majority}, minority" in ended


@pytest.mark.filterwarnings("default:.*round 2 has round rows")
def test_rounds_that_some_site_left_out_do_not_shift_the_others(tmp_path, command):
    rounds = [(1e6, [0, 0, 0, 0]), (2e6, [0, 0, 0, 0]), (3e6, [0, 0, 0, 1]), (4e6, [0, 0, 0, 1])]
    path = write_run(tmp_path / "run", rounds, {3: [9] * 4}, [9] * 4, "algorithm.seeding=none", "algorithm.warmup=0")
    rows = [json.loads(line) for line in (path / "rows.jsonl").read_text().splitlines()]
    kept = [row for row in rows if (row["kind"], row["round"], row["node"]) != ("round", 2, 1)]  # node 1 jumped
    (path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in kept))
    with pytest.warns(UserWarning, match="round 2 has round rows of 3 of 4 nodes"):
        run = load(path)
    assert run.rounds.tolist() == [1, 3, 4]
    assert cost_to(run, 0.5) == (3, 4e6)
    assert settlement(run).settling_round == 3
    shown = command("show", path, "--heads").out
    table = [line.split() for line in shown[shown.index("Percent of nodes") :].splitlines()]
    assert [line for line in table if line and line[0] in ("1", "3", "4")] == [
        ["1", "100", "0", "100", "0"], ["3", "100", "0", "0", "100"], ["4", "100", "0", "0", "100"],
    ]  # fmt: skip


def test_rows_are_read_backwards_in_one_walk(runs, monkeypatch):
    rows = RowsFile(runs / "el1" / "rows.jsonl")
    expected, walks, forwards = list(rows), [], RowsFile.__iter__
    monkeypatch.setattr(RowsFile, "__iter__", lambda self: walks.append(1) or forwards(self))
    assert list(reversed(rows)) == expected[::-1]
    assert len(walks) == 1


@pytest.mark.filterwarnings("default")
def test_a_half_written_last_row_is_ignored_and_said(command, runs):
    whole = command("show", runs / "el1", "--json").out
    with (runs / "el1" / "rows.jsonl").open("a") as rows:
        rows.write('{"kind":"final","rou')
    ended = command("show", runs / "el1", "--json")
    assert ended.code == 0
    assert ended.out == whole
    assert "rows.jsonl: the last row is half-written and ignored" in ended.err


@pytest.mark.filterwarnings("default")
def test_an_unfinished_run_is_left_out_and_said(command, runs):
    path = runs / "el1" / "rows.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    ended = command("show", runs, "--json")
    assert ended.code == 0
    assert "el1 is not finished (round 2 of 2); continue it with: facade run" in ended.err
    assert "has final rows of 3 of 4 nodes" in ended.err
    el = json.loads(ended.out)["experiments"][0]
    assert (el["label"], el["seeds"]) == ({"algorithm": "el"}, [2])
    assert command("show", runs / "el1").code == 2, "alone it is nothing to show"


@pytest.mark.filterwarnings("default")
def test_the_same_experiment_and_seed_count_once(command, runs):
    write_run(runs / "el1-again", QUIET, {}, [8] * 4, "algorithm.name=el", "seed=1")
    ended = command("show", runs, "--json")
    assert "el1-again repeats the experiment and seed of" in ended.err
    assert "with other results; it is left out" in ended.err
    assert json.loads(ended.out)["experiments"][0]["seeds"] == [1, 2]


def test_a_row_that_is_no_row_is_named_by_its_line(command, runs):
    path = runs / "el1" / "rows.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:2], "garbage", *lines[3:]]) + "\n")
    ended = command("show", runs / "el1")
    assert ended.code == 2
    assert "rows.jsonl, line 3 is not a row" in ended.err


def test_a_missing_run_is_one_sentence(command, tmp_path):
    for path, sentence in {tmp_path / "nowhere": "does not exist", tmp_path: "holds no run"}.items():
        ended = command("show", path)
        assert ended.code == 2
        assert sentence in ended.err
        assert ended.err.count("\n") == 1


def test_a_run_without_clusters_is_shown(command, tmp_path):
    write_run(tmp_path / "r", QUIET, {}, [5, 6, 7, 8], cluster=None)
    ended = command("show", tmp_path / "r", "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["experiments"][0]["numbers"]["all"]["mean"] == pytest.approx(0.65)


def test_bold_follows_the_intervals_of_the_verdict(command, tmp_path):
    for name, minority in {"facade": 9, "deprl": 8, "el": 2}.items():
        choices = [0, 0, 0, 1] if name == "facade" else None
        write_run(tmp_path / name, [(1e6, choices)] * 2, {}, [9, 9, 9, minority], f"algorithm.name={name}")
    text = command("show", tmp_path, "--markdown", "--columns", "cluster_0,cluster_1,eo").out
    lines = {line.split(" | ")[0].strip("| *"): line for line in text.splitlines() if line.startswith("| ")}
    assert lines["facade"].startswith("| **facade** | 1 | 90.00 "), "what is alike in all lines leads nobody"
    assert "| **90.00** [" in lines["facade"]
    assert "| **80.00** [" in lines["deprl"], "20 test images cannot tell 80 from 90 percent"
    assert "| 20.00 [" in lines["el"]
    latex = command("show", tmp_path, "--latex", "--columns", "cluster_1").out
    assert r"\textbf{facade} & 1 & \textbf{90.00}" in latex
    assert r"el & 1 & 20.00" in latex


def test_lines_on_other_data_are_not_compared(tmp_path):
    for skew, right in {"rotate": 2, "blur": 9}.items():
        for name, more in {"el": 0, "local": 1}.items():
            settings = (f"data.skew={skew}", f"algorithm.name={name}")
            write_run(tmp_path / f"{skew}-{name}", QUIET, {}, [right + more] * 4, *settings)
    table = tabulate(load_all([tmp_path]))
    assert table.leading["cluster_0"] == set(), "on either data, the two are alike"
