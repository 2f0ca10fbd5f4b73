import contextlib
import json
import math
import signal
import subprocess
import sys

import pytest

from facade import Experiment
from facade.cli import progress
from facade.cli.progress import SweepProgress
from facade.cli.sweep import parse_seeds
from facade.runs.history import load_all
from facade.runs.run_directory import RunDirectory
from facade.sweep import estimate, process_pool, worker
from facade.sweep.jobs import Candidate, points, split_values, write_selection
from results.conftest import tiny
from results.jobs import ends, jobs_of
from runs import unseal
from surroundings import csv_lines

GRID = ["--grid", "algorithm.name=facade,el", "--grid", "training.lr=0.02,0.2", "--seeds", "1,2"]


def rows_of(path):
    return csv_lines(path.read_text())


@pytest.fixture
def sweep(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.toml").write_text(tiny("data.validation=0.2").toml())

    def call(*arguments, out="out"):
        return command("sweep", "tiny.toml", *arguments, "--out", tmp_path / out)

    return call


@pytest.fixture
def computed(monkeypatch):
    """Names of the runs that were really computed, and a way to meddle with them."""
    compute, names = worker.compute, []

    def watched(experiment, path, *how):
        names.append(path.name)
        return compute(experiment, path, *how)

    monkeypatch.setattr("facade.sweep.process_pool.compute", watched)
    return names


def test_a_grid_is_all_combinations_and_values_are_read_like_settings():
    assert points(["a.b=1,2", "c=x"]) == [("a.b=1", "c=x"), ("a.b=2", "c=x")]
    assert points([]) == [()]
    assert split_values('16:16,24:8,"a,b",[1, 2],') == ["16:16", "24:8", '"a,b"', "[1, 2]"]


def test_a_sweep_writes_one_directory_per_run_and_a_table(sweep, computed, tmp_path):
    ended = sweep(*GRID)
    assert ended.code == 0, ended.err
    assert "8 runs: 0 finished, 0 to continue, 8 to start." in ended.err
    assert "Expected: about" in ended.err
    assert "from timing one round and one evaluation of 2 kinds of run" in ended.err
    assert len(computed) == 8
    assert all((tmp_path / "out" / name / "result.json").exists() for name in computed)
    table = rows_of(tmp_path / "out" / "table.csv")
    assert {(line["algorithm"], line["training.lr"], line["seeds"]) for line in table} == {
        (name, lr, "1 2") for name in ("el", "facade") for lr in ("0.02", "0.2")
    }
    assert (tmp_path / "out" / "order.txt").read_text().split() == computed, "in the order of the grid"
    assert [run.path.name for run in load_all([tmp_path / "out"])] == computed
    again = sweep(*GRID)
    assert (again.code, len(computed)) == (0, 8), "finished runs are skipped"
    assert "8 runs: 8 finished" in again.err


def test_a_sweep_that_was_interrupted_and_called_again_gives_the_same_table(sweep, tmp_path, monkeypatch):
    from facade.runtimes import recorder

    assert sweep(*GRID, out="whole").code == 0
    add, rows = recorder.Recorder.add, []

    def interrupted(self, new):
        add(self, new)
        rows.extend(new)
        if len(rows) in range(150, 170):  # in the middle of the fourth run
            signal.raise_signal(signal.SIGINT)
            rows.extend([None] * 100)

    with monkeypatch.context() as patch:
        patch.setattr(recorder.Recorder, "add", interrupted)
        stopped = sweep(*GRID, out="parts")
    assert stopped.code == 130, stopped.err
    assert "give the same command to go on" in stopped.err
    assert not (tmp_path / "parts" / "table.csv").exists()
    ended = sweep(*GRID, out="parts")
    assert ended.code == 0, ended.err
    assert "1 to continue" in ended.err
    assert (tmp_path / "parts" / "table.csv").read_bytes() == (tmp_path / "whole" / "table.csv").read_bytes()
    assert (tmp_path / "parts" / "table.csv").stat().st_size > 1000


def test_a_failed_run_is_reported_and_tried_again(sweep, computed, tmp_path):
    grid = ["--grid", "training.lr=0.05,1e30", "--set", "algorithm.name=el"]
    ended = sweep(*grid)
    assert ended.code == 1
    assert "failed: training diverged in round" in ended.err
    assert "1 of 2 runs failed" in ended.err
    assert (tmp_path / "out" / "table.csv").exists(), "the others are shown"
    sweep(*grid)
    assert len(computed) == 3


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_run_that_another_sweep_is_computing_has_not_failed(sweep, tmp_path, jobs):
    grid = ["--grid", "training.lr=0.05,0.1,0.2", "--set", "algorithm.name=el", "--jobs", jobs]
    assert sweep(*grid, out="whole").code == 0
    names = sorted(path.name for path in (tmp_path / "whole").iterdir() if path.is_dir())
    (tmp_path / "out").mkdir()
    with RunDirectory(tmp_path / "out" / names[0]).claimed():
        ended = sweep(*grid)
    assert ended.code == 1
    assert "failed" not in ended.err
    sentence = f"1 of 3 runs are being computed by another process ({names[0]}); give the same command when it is done"
    assert sentence in " ".join(ended.err.split())
    assert (tmp_path / "out" / "table.csv").exists(), "the others are shown"
    assert not (tmp_path / "out" / names[0] / "result.json").exists()


def test_runs_that_another_sweep_has_finished_meanwhile_count(sweep, tmp_path, monkeypatch):
    grid = ["--grid", "training.lr=0.05,0.1", "--set", "algorithm.name=el"]
    compute, asked, other = worker.compute, [], contextlib.ExitStack()

    def watched(experiment, path, *how):
        if not asked:  # another sweep has it, until we come by again
            other.enter_context(RunDirectory(path).claimed())
        elif path == asked[0]:
            other.close()
        asked.append(path)
        return compute(experiment, path, *how)

    monkeypatch.setattr("facade.sweep.process_pool.compute", watched)
    ended = sweep(*grid)
    assert ended.code == 0, ended.err
    assert asked == [asked[0], asked[1], asked[0]]
    assert "busy: " in ended.err


def test_a_setting_that_an_algorithm_does_not_have_is_run_once(sweep, tmp_path):
    ended = sweep("--grid", "algorithm.name=el,facade", "--grid", "algorithm.heads=2,3", "--dry-run")
    assert "3 runs: 0 finished" in ended.err
    assert not (tmp_path / "out").exists(), "a dry run computes nothing"


def test_the_best_point_on_validation_data_is_chosen_for_every_algorithm(sweep, tmp_path):
    ended = sweep(*GRID, "--select", "validation.fair_accuracy")
    assert ended.code == 0, ended.err
    lines = rows_of(tmp_path / "out" / "selection.csv")
    assert len(lines) == 4, "the whole table"
    for algorithm in ("el", "facade"):
        mine = [line for line in lines if line["algorithm"] == algorithm]
        chosen = [line for line in mine if line["chosen"] == "yes"]
        assert len(chosen) == 1
        means = [float(line["mean validation.fair_accuracy"]) for line in mine]
        assert float(chosen[0]["mean validation.fair_accuracy"]) == max(means)
        written = Experiment.load(tmp_path / "out" / f"chosen-{algorithm}.toml")
        assert f"training.lr={written.training.lr}" in chosen[0]["point"]
        assert written.runtime.threads == 0, "what the sweep gave a run of the machine is not part of the choice"


def test_choices_of_two_algorithms_with_one_class_name_are_both_kept(tmp_path, monkeypatch):
    for module in ("ward_a", "ward_b"):
        (tmp_path / f"{module}.py").write_text("from facade.algorithms.el import EL\nclass Mine(EL):\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = [Candidate(tiny(f"algorithm.name={module}:Mine"), (), [0.5], True) for module in ("ward_a", "ward_b")]
    written = [path.name for path in write_selection(found, "validation.all", tmp_path)]
    assert written == ["selection.csv", "chosen-ward_a.Mine.toml", "chosen-ward_b.Mine.toml"]


@pytest.mark.parametrize("number", ["loss", "auc"])
def test_the_choice_never_looks_at_test_data(sweep, tmp_path, number):
    grid = ["--grid", "training.lr=0.02,0.2", "--select", f"validation.{number}"]
    assert sweep(*grid).code == 0
    chosen = (tmp_path / "out" / "selection.csv").read_text()
    for rows in (tmp_path / "out").glob("*/rows.jsonl"):
        lines = [json.loads(line) for line in rows.read_text().splitlines()]
        for row in lines:
            if "confusion" in row:
                row["confusion"] = [[1] * 10] * 10
                row["loss"] = 0.0
                row["measures"] = {"auc": [0.5, 0.0], "log_loss": [0.0, 0.0], "calibration_error": 0.0}
        rows.write_text("".join(json.dumps(row) + "\n" for row in lines))
        unseal(rows.parent)
    assert sweep(*grid).code == 0
    assert (tmp_path / "out" / "selection.csv").read_text() == chosen
    assert "yes" in chosen


def test_a_point_with_a_failed_run_is_not_chosen(sweep, tmp_path):
    sweep("--grid", "training.lr=1e30,0.02", "--select", "validation.all", "--set", "algorithm.name=el")
    first, second = rows_of(tmp_path / "out" / "selection.csv")
    assert (first["values"], first["chosen"]) == ("none", "")
    assert second["chosen"] == "yes"


def test_a_point_without_a_number_is_not_chosen(sweep, tmp_path, monkeypatch):
    losses = iter([math.nan, 0.5])
    monkeypatch.setattr("facade.sweep.jobs.validated", lambda *_: {"loss": next(losses)})
    sweep("--grid", "training.lr=0.1,0.02", "--select", "validation.loss", "--set", "algorithm.name=el")
    first, second = rows_of(tmp_path / "out" / "selection.csv")
    assert (first["values"], first["chosen"]) == ("none", "")
    assert second["chosen"] == "yes"


def test_several_at_a_time_give_the_same_table_and_survive_a_worker_that_dies(sweep, tmp_path):
    (tmp_path / "deadly.py").write_text(
        "import os\n"
        "from dataclasses import dataclass\n"
        "from facade.algorithms.el import EL\n"
        "@dataclass(frozen=True)\n"
        "class Deadly(EL):\n"
        "    def local(self, turn, state):\n"
        "        if turn.round == 3 and not os.path.exists('bitten'):\n"
        "            open('bitten', 'w').close()\n"
        "            os._exit(7)\n"
        "        print('something on standard output')\n"
        "        return super().local(turn, state)\n"
    )
    (tmp_path / "bitten").touch()
    grid = ["--grid", "algorithm.name=el,deadly:Deadly", "--seeds", "1,2"]
    assert sweep(*grid, out="one").code == 0
    (tmp_path / "bitten").unlink()
    ended = sweep(*grid, "--jobs", "2", out="two")
    assert ended.code == 1
    assert "failed: its process ended with code 7" in ended.err
    assert "1 of 4 runs failed" in ended.err
    again = sweep(*grid, "--jobs", "2", out="two")
    assert again.code == 0, again.err
    assert "4 runs: 3 finished, 1 to continue" in again.err
    assert (tmp_path / "two" / "table.csv").read_bytes() == (tmp_path / "one" / "table.csv").read_bytes()


MISTAKEN = """
from dataclasses import dataclass
from facade.algorithms.el import EL
@dataclass(frozen=True)
class Mistaken(EL):
    def local(self, turn, state):
        return {}["weights"] if turn.round == 2 else super().local(turn, state)
"""


@pytest.mark.parametrize("jobs", [1, 2])
def test_where_an_algorithm_of_ones_own_failed_can_be_read(sweep, tmp_path, monkeypatch, jobs):
    (tmp_path / "mistaken.py").write_text(MISTAKEN)
    monkeypatch.delitem(sys.modules, "mistaken", raising=False)
    call = ["--seeds", "1,2", "--set", "algorithm.name=mistaken:Mistaken", "--jobs", str(jobs)]
    ended = sweep(*call)
    assert ended.code == 1
    for seed in (1, 2):
        (noted,) = (tmp_path / "out").glob(f"*-seed{seed}-failure.txt")
        assert f"failed: KeyError: 'weights'; {noted} says where\n" in ended.err
        assert 'return {}["weights"]' in noted.read_text()
    (tmp_path / "mistaken.py").write_text(MISTAKEN.replace("== 2", "== 2000"))
    monkeypatch.delitem(sys.modules, "mistaken")
    assert sweep(*call).code == 0
    assert not list((tmp_path / "out").glob("*-failure.txt")), "a run that is good says nothing of its failures"


def test_a_point_whose_timing_fails_does_not_keep_the_others_from_being_run(sweep, tmp_path, monkeypatch):
    (tmp_path / "mistaken.py").write_text(MISTAKEN.replace("turn.round == 2", "True"))
    monkeypatch.delitem(sys.modules, "mistaken", raising=False)
    ended = sweep("--grid", "algorithm.name=el,mistaken:Mistaken")
    assert ended.code == 1
    assert "; 1 could not be timed:\n  algorithm.name=mistaken:Mistaken: KeyError: 'weights'\n" in ended.err
    assert len(list((tmp_path / "out").glob("*/result.json"))) == 1


def test_long_runs_are_heard_of_without_a_terminal_and_short_ones_at_their_end(tmp_path, monkeypatch, capsys):
    clock = [0.0]
    monkeypatch.setattr(progress, "monotonic", lambda: clock[0])
    (job,) = jobs_of(tmp_path, "training.rounds=5", count=1)
    with SweepProgress(1, 0) as watched:
        for seconds, done, accuracies in (
            (0, 0, None), (59.9, 1, None), (60, 2, None), (80, 3, [0.5, 0.25]), (125, 4, None), (200, 5, [0.75, 0.5]),
        ):  # fmt: skip
            clock[0] = seconds
            watched.rounds_done(job, {"done": done} | ({} if accuracies is None else {"values": accuracies}))
        watched.ended(process_pool.EndedJob(job, "finished"))
    assert capsys.readouterr().err.splitlines() == [
        "run-1  round 2/5",
        "run-1  round 4/5  50.0 25.0 % after 3",
        "run-1  round 5/5  75.0 50.0 % after 5",
        "1/1  run-1 finished",
    ]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_signal_stops_a_sweep_which_leaves_with_its_code(sweep, tmp_path, monkeypatch, jobs, number, code):
    rounds_done, once = SweepProgress.rounds_done, iter([number])

    def interrupted(self, job, event):
        rounds_done(self, job, event)
        if event["done"] == 2 and (given := next(once, None)) is not None:  # both jobs come by
            signal.raise_signal(given)

    monkeypatch.setattr(SweepProgress, "rounds_done", interrupted)
    ended = sweep("--seeds", "1,2,3", "--jobs", str(jobs), "--set", "training.rounds=4000")
    assert ended.code == code, ended.err
    assert "stopped with 0 of 3 runs finished; give the same command to go on" in ended.err
    assert list((tmp_path / "out").glob("*/checkpoints/*.saved")), "a run under way writes a checkpoint"
    assert not list((tmp_path / "out").glob("*-seed3")), "nothing new is begun"


def test_a_second_ctrl_c_does_not_wait_and_leaves_no_worker(tmp_path, monkeypatch):
    workers, start = [], subprocess.Popen

    def started(*arguments, **options):
        workers.append(start(*arguments, **options))
        return workers[-1]

    monkeypatch.setattr(subprocess, "Popen", started)

    def twice(job, event):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        ends(jobs_of(tmp_path, "training.rounds=4000"), twice)
    assert workers
    assert None not in [worker.returncode for worker in workers]


def test_what_a_run_costs_is_extrapolated_from_one_round_and_one_evaluation():
    experiment = tiny("training.rounds=100", "evaluation.every=10")
    assert estimate.Price(setup=1, round=2, evaluation=3).of(experiment) == 1 + 200 + 33
    assert estimate.Price(setup=1, round=2, evaluation=3).of(experiment, done=90) == 1 + 20 + 6
    price = estimate.trial(experiment)
    assert price.setup > 0
    assert price.round > 0
    assert price.evaluation > 0
    one = estimate.trial(tiny("training.rounds=1", "algorithm.name=local"))
    assert one.round > 0


def test_experiments_that_cost_the_same_are_timed_once():
    same = [tiny("seed=2"), tiny("training.lr=0.5"), tiny("training.rounds=9"), tiny("evaluation.every=1")]
    assert {estimate.kind(experiment) for experiment in same} == {estimate.kind(tiny())}
    assert estimate.kind(tiny("training.steps=2")) != estimate.kind(tiny())


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("", ()), ("1,2,3", (1, 2, 3)), ("1-3", (1, 2, 3)), ("1, 2,5-8", (1, 2, 5, 6, 7, 8)), ("2,1-3,3-3", (2, 1, 3))],
)
def test_seeds_come_one_by_one_and_in_ranges_each_once(text, seeds):
    assert parse_seeds(text) == seeds


BAD = {
    (): "there is nothing to sweep over",
    ("--grid", "training.lr="): "--grid training.lr=: expected section.key=value,value",
    ("--grid", "training.lr"): "expected section.key=value,value",
    ("--seeds", "1,x"): "--seeds 1,x: expected whole numbers and ranges",
    ("--seeds", "1-"): "--seeds 1-: expected whole numbers and ranges",
    ("--seeds", "-1"): "--seeds -1: expected whole numbers and ranges",
    ("--seeds", "3-1"): "--seeds 3-1: 3-1 has no seeds; give the lower one first, such as 1-3",
    ("--grid", "algorithm.name=el,facde"): "did you mean 'facade'?",
    ("--grid", "topology.degree=2,9"): "error: topology.degree=9: topology.degree = 9 is not possible",
    ("--seeds", "1", "--select", "test.all"): "choosing on test data would make the test worthless",
    ("--seeds", "1", "--select", "validation.fair"): "unknown number to select by 'fair'",
    ("--seeds", "1", "--select", "validation.all", "--set", "data.validation=0"): "needs validation data",
    ("--seeds", "1", "--select", "validation.eo", "--set", "data.clusters=4"): "needs two clusters or more",
    ("--seeds", "1", "--select", "validation.gap", "--set", "data.clusters=4"): "needs two clusters or more",
    ("--seeds", "1", "--set", "runtime.name=ray"): "the experiment says runtime.name = 'ray'; add --runtime ray",
}


@pytest.mark.parametrize("arguments", BAD)
def test_a_sweep_that_makes_no_sense_is_refused_before_anything_is_computed(sweep, computed, tmp_path, arguments):
    ended = sweep(*arguments)
    assert ended.code == 2, ended.err
    assert BAD[arguments] in ended.err
    assert not (tmp_path / "out").exists()
    assert not computed
