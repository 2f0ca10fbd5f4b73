"""Runs are judged by other measures than accuracy: in tables and by the fairness gate, whichever way is better."""

import json

import numpy as np
import pytest

from facade.analysis.measures import MEASURES
from facade.analysis.statistics import estimates, numbers
from facade.analysis.table import tabulate
from facade.cli.display_measures import leading
from facade.errors import ExperimentError
from facade.report import facts
from facade.report.page import report
from facade.report.verdicts import verdicts
from facade.runs.history import judged_by, load, load_all
from handmade import write_run
from results.conftest import tiny

RIGHT = [9, 8, 8, 6]


def measured_run(path, *settings, auc, loss=(0.3, 0.4, 0.5, 0.9), rounds=2):
    """A run of four nodes, the last of another cluster, whose tests gave these AUCs (None: a class is missing) and
    log losses, the same at every evaluation but that the first was worse."""
    write_run(path, [(1e6, None)] * rounds, {1: RIGHT}, RIGHT, *settings)
    rows = [json.loads(line) for line in (path / "rows.jsonl").read_text().splitlines()]
    for row in rows:
        if "confusion" in row:
            node, early = row["node"], 0.1 * (row["kind"] == "evaluation")
            area = None if auc[node] is None else [auc[node] - early, 0.0004]
            row["measures"] = {"auc": area, "log_loss": [loss[node] + early, 0.0025], "calibration_error": 0.1}
    (path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def runs(tmp_path):
    measured_run(tmp_path / "el", "algorithm.name=el", auc=[0.9, 0.8, 0.85, 0.7])
    alone = (0.5, 0.5, 0.5, 0.6)
    measured_run(tmp_path / "alone", "algorithm.name=local", auc=[0.8, 0.8, 0.8, 0.75], loss=alone)
    return tmp_path


def test_numbers_are_those_of_the_measure(runs):
    el, local = judged_by([load(runs / "el"), load(runs / "alone")], "auc")
    found = numbers(el, local=[local])
    assert found["cluster_0"] == pytest.approx(0.85)
    assert found["worst_cluster"] == found["worst_node"] == pytest.approx(0.7)
    assert found["gap"] == pytest.approx(0.15)
    assert found["highest_all"] == found["all"] == pytest.approx(0.8125)
    assert found["worst_gain"] == pytest.approx(-0.05)
    assert found["fair_accuracy"] == numbers(load(runs / "el"))["fair_accuracy"], "which is of accuracy by its name"


def test_where_less_is_better_the_worst_is_the_highest_and_a_gain_is_a_fall(runs):
    el, local = judged_by([load(runs / "el"), load(runs / "alone")], "log-loss")
    found = numbers(el, target=0.53, local=[local])
    assert found["worst_cluster"] == found["worst_node"] == pytest.approx(0.9)
    assert found["worst_gain"] == pytest.approx(0.6 - 0.9)
    assert found["mean_gain"] == pytest.approx((0.2 + 0.1 + 0 - 0.3) / 4)
    assert found["lowest_all"] == found["all"] == pytest.approx(0.525)
    assert found["rounds_to_target"] == 2, "the first evaluation had a loss above it"
    assert "highest_all" not in found


def test_intervals_of_one_run_come_from_the_variances_of_its_nodes(runs):
    el, local = judged_by([load(runs / "el"), load(runs / "alone")], "log-loss")
    found = estimates([el], None, [local])
    low, high, _ = found["cluster_1"].interval
    assert (low, high) == pytest.approx((0.9 - 1.96 * 0.05, 0.9 + 1.96 * 0.05), abs=0.01)
    low, high, _ = found["cluster_0"].interval
    assert (low, high) == pytest.approx((0.4 - 1.96 * 0.05, 0.4 + 1.96 * 0.05), abs=0.01), "they share a test set"
    low, high, _ = found["worst_gain"].interval
    reach = 1.96 * np.hypot(0.05, 0.05)
    assert (low, high) == pytest.approx((-0.3 - reach, -0.3 + reach), abs=0.02)
    (area,) = judged_by([load(runs / "el")], "auc")
    low, high, kind = estimates([area])["cluster_1"].interval
    assert (low, high) == pytest.approx((0.66, 0.737), abs=0.01)
    assert kind == "test-set noise only"
    (error,) = judged_by([load(runs / "el")], "calibration-error")
    assert estimates([error])["all"].interval is None


def test_a_node_without_the_measure_is_left_out_and_a_cluster_of_none_has_none(tmp_path):
    measured_run(tmp_path / "one", auc=[0.9, None, 0.7, None])
    (run,) = judged_by([load(tmp_path / "one")], "auc")
    found = numbers(run)
    assert found["cluster_0"] == found["all"] == pytest.approx(0.8)
    assert not {"cluster_1", "worst_cluster", "gap"} & found.keys()


def test_an_older_run_shows_a_dash(command, tmp_path):
    write_run(tmp_path / "old", [(1e6, None)] * 2, {}, RIGHT)
    shown = command("show", tmp_path / "old", "--measure", "auc", "--markdown")
    assert shown.code == 0, shown.err
    assert "AUC" in shown.out
    assert "| - | - |" in shown.out
    balanced = command("show", tmp_path / "old", "--measure", "balanced-accuracy", "--markdown").out
    assert "majority bal. acc." in balanced
    assert "83.33" in balanced


def test_tables_say_what_they_are_judged_by(command, runs):
    plain = command("show", runs, "--markdown").out
    assert "majority acc." in plain
    by_auc = command("show", runs, "--markdown", "--measure", "auc").out
    assert "majority AUC" in by_auc
    assert "0.8500" in by_auc
    assert "AUC: area under the ROC curve" in by_auc
    by_loss = command("show", runs, "--markdown", "--measure", "log-loss", "--target", "0.53").out
    assert "rounds to 0.53" in by_loss
    assert "gains are positive where it is lower" in by_loss
    assert command("show", runs, "--measure", "acu").code == 2


def test_programs_are_told_every_measure_of_every_site(command, runs):
    measured_run(runs / "el2", "algorithm.name=el", "seed=2", auc=[0.9, None, 0.85, 0.8])
    told = json.loads(command("show", runs, "--json").out)
    assert told["measure"] == "accuracy"
    el = next(line for line in told["experiments"] if line["label"] == {"algorithm": "el"})["measures"]
    assert el["auc"]["sites"]["node 3"]["values"] == [0.7, 0.8]
    assert el["auc"]["sites"]["node 3"]["mean"] == pytest.approx(0.75)
    assert el["auc"]["sites"]["node 3"]["interval"]["accounts_for"] == "seeds"
    assert el["auc"]["sites"]["node 1"]["mean"] is None
    assert el["log-loss"]["clusters"][1]["values"] == [0.9, 0.9]
    alone = next(line for line in told["experiments"] if line["label"] == {"algorithm": "local"})["measures"]
    assert alone["auc"]["sites"]["node 3"]["interval"]["accounts_for"] == "test-set noise only"
    assert alone["accuracy"]["clusters"][0]["mean"] == pytest.approx(25 / 30)


def test_runs_say_what_they_are_judged_by_and_must_agree(tmp_path):
    measured_run(tmp_path / "a", "evaluation.measure=auc", auc=[0.9, 0.8, 0.85, 0.7])
    measured_run(tmp_path / "b", "seed=2", auc=[0.9, 0.8, 0.85, 0.7])
    assert tabulate([load(tmp_path / "a")]).measure.name == "auc"
    with pytest.raises(ExperimentError, match=r"different measures \(accuracy, auc\); name one of them, as"):
        tabulate(load_all([tmp_path]))
    assert len(tabulate(judged_by(load_all([tmp_path]), "auc")).lines) == 1, "it is the same experiment"


@pytest.fixture
def check(command, runs):
    def call(*lines, against=()):
        (runs / "fair.toml").write_text("\n".join(lines))
        return command("check", runs / "el", "--contract", runs / "fair.toml", "--against", runs / "alone", "--json")

    return call


def verdict(ended):
    (only,) = json.loads(ended.out)["verdicts"]
    return only["outcome"], only["mean"]


@pytest.mark.parametrize(
    ("measure", "clause", "outcome", "mean"),
    [
        ("auc", "min_cluster = 0.69", "kept", 0.7),
        ("auc", "min_cluster = 0.71", "broken", 0.7),
        ("log-loss", "max_cluster = 0.91", "kept", 0.9),
        ("log-loss", "max_cluster = 0.89", "broken", 0.9),
        ("log-loss", "max_gap = 1.5", "kept", 0.5),
        ("log-loss", "min_gain_over_local = -0.31", "kept", -0.3),
        ("log-loss", "min_gain_over_local = 0", "broken", -0.3),
        ("auc", "min_gain_over_local = 0", "broken", -0.05),
        ("auc", "min_cluster_accuracy = 0.6", "kept", 0.6),
        ("calibration-error", "max_cluster = 0.05", "broken", 0.1),
        ("accuracy", "min_cluster = 0.61", "broken", 0.6),
    ],
)
def test_clauses_bound_the_measure_that_the_contract_names(check, measure, clause, outcome, mean):
    ended = check(f'measure = "{measure}"', clause)
    found, value = verdict(ended)
    assert (found, value) == (outcome, pytest.approx(mean))
    assert ended.code == (1 if outcome == "broken" else 0)


@pytest.mark.parametrize(
    ("measure", "clause", "said"),
    [
        ("log-loss", "min_cluster = 0.5", "judged by log-loss, of which less is better; use max_cluster"),
        ("auc", "max_cluster = 0.5", "judged by auc, of which more is better; use min_cluster"),
        ("auc", "min_cluster = 50", "makes no sense"),
        ("acu", "min_cluster = 0.5", "unknown measure 'acu'; did you mean 'auc'?"),
    ],
)
def test_a_contract_that_bounds_the_wrong_side_is_refused(check, measure, clause, said):
    ended = check(f'measure = "{measure}"', clause)
    assert ended.code == 2
    assert said in " ".join(ended.err.split())


@pytest.mark.parametrize(
    ("clause", "outcome", "mean"),
    [("max_cluster = 1.5", "kept", 1.2), ("max_cluster = 1.1", "broken", 1.2), ("max_gap = 1.01", "kept", 0.8)],
)
def test_limits_above_1_are_judged_where_the_runs_are_judged_by_log_loss(command, tmp_path, clause, outcome, mean):
    settings = ("algorithm.name=el", "evaluation.measure=log-loss")
    measured_run(tmp_path / "el", *settings, auc=[0.9] * 4, loss=(0.4, 0.4, 0.4, 1.2))
    (tmp_path / "fair.toml").write_text(clause)
    ended = command("check", tmp_path / "el", "--contract", tmp_path / "fair.toml", "--json")
    assert verdict(ended) == (outcome, pytest.approx(mean))


@pytest.mark.parametrize(
    ("measure", "clause", "said"),
    [
        ("accuracy", "min_cluster = 80", "min_cluster = 80 makes no sense; expected a number from 0 to 1 (accuracies"),
        ("auc", "max_gap = 2", "max_gap = 2 makes no sense; expected a number from 0 to 1 (AUC)"),
        ("calibration-error", "max_cluster = 5", "expected a number from 0 to 1 (calibration error)"),
        ("log-loss", "max_cluster = -1", "max_cluster = -1 makes no sense; expected a number from 0 on (log loss)"),
        ("log-loss", "min_fair_accuracy = 2", "expected a number from 0 to 1 (accuracies are shares, 0.8 is 80 %)"),
    ],
)
def test_a_limit_that_the_runs_own_measure_never_has_is_refused(command, tmp_path, measure, clause, said):
    measured_run(tmp_path / "el", "algorithm.name=el", f"evaluation.measure={measure}", auc=[0.9] * 4)
    (tmp_path / "fair.toml").write_text(clause)
    ended = command("check", tmp_path / "el", "--contract", tmp_path / "fair.toml")
    assert (ended.code, ended.out) == (2, "")
    assert said in " ".join(ended.err.split())


@pytest.mark.parametrize(
    ("measure", "target", "reached"), [("log-loss", "1.01", 1), ("log-loss", "0.95", 2), ("auc", "0.89", 2)]
)
def test_a_target_is_a_value_of_the_measure(command, tmp_path, measure, target, reached):
    measured_run(tmp_path / "el", "algorithm.name=el", auc=[0.9] * 4, loss=(0.9, 0.9, 0.9, 0.9))
    asked = ("show", tmp_path, "--measure", measure, "--target", target)
    (line,) = json.loads(command(*asked, "--json").out)["experiments"]
    assert line["numbers"]["rounds_to_target"]["mean"] == reached
    assert f"| rounds to {target} |" in command(*asked, "--markdown").out


def test_a_target_that_the_measure_never_has_is_refused(command, tmp_path):
    measured_run(tmp_path / "el", "algorithm.name=el", auc=[0.9] * 4)
    for measure, target, said in (
        ("accuracy", "80", "target = 80.0 makes no sense; expected a number from 0 to 1 (accuracies are shares"),
        ("auc", "1.5", "target = 1.5 makes no sense; expected a number from 0 to 1 (AUC)"),
        ("log-loss", "-1", "target = -1.0 makes no sense; expected a number from 0 on (log loss)"),
    ):
        ended = command("show", tmp_path, "--measure", measure, "--target", target)
        assert (ended.code, ended.out) == (2, "")
        assert said in " ".join(ended.err.split())


def test_a_contract_that_names_a_measure_alone_has_no_clause(check):
    assert "has no clause" in check('measure = "auc"').err


def test_what_an_older_run_does_not_have_is_not_judged(command, tmp_path):
    write_run(tmp_path / "old", [(1e6, None)] * 2, {}, RIGHT)
    (tmp_path / "fair.toml").write_text('measure = "auc"\nmin_cluster = 0.5\n')
    ended = command("check", tmp_path / "old", "--contract", tmp_path / "fair.toml")
    assert ended.code == 2
    assert "min_cluster = 0.5 (AUC): not judged" in " ".join(ended.out.split())
    assert "as in runs of older versions" in " ".join(ended.out.split())


# Reports


def compared(runs, measure):
    (comparison,) = facts.comparisons(judged_by(load_all([runs]), measure))
    return comparison


def test_a_page_is_drawn_and_judged_by_the_measure(runs):
    page = report(judged_by(load_all([runs]), "log-loss"))
    assert ">Log loss per cluster over rounds</h" in page
    assert "Down and left is better" in page
    assert "log loss gained over training alone" in page
    assert "majority log loss" in page


def test_the_verdict_calls_the_lower_loss_better(runs):
    (sentence,) = verdicts(compared(runs, "log-loss"))
    assert sentence.startswith("local serves the worst-served cluster better than el by 0.300: log loss 0.600 against")
    (sentence,) = verdicts(compared(runs, "auc"))
    assert sentence.startswith("local and el serve the worst-served cluster too much alike to tell apart: AUC 0.750")


def test_gains_and_fronts_of_a_page_follow_the_direction(runs):
    by_loss = compared(runs, "log-loss")
    gained = [row["gain"] for row in facts.node_gains(by_loss) if row["who"] == "el"]
    assert gained == pytest.approx([0.2, 0.1, 0.0, -0.3])
    assert {row["who"]: row["front"] for row in facts.prices(by_loss)} == {"local": True, "el": False}
    assert facts.accuracy_alone(by_loss) == pytest.approx(0.525)


def test_a_page_of_older_runs_says_that_they_cannot_be_compared(tmp_path):
    for name in ("el", "local"):
        write_run(tmp_path / name, [(1e6, None)] * 2, {}, RIGHT, f"algorithm.name={name}")
    (sentence,) = verdicts(compared(tmp_path, "auc"))
    assert sentence.endswith("cannot be compared: a run has no AUC.")
    assert "AUC: area under the ROC curve" in report(judged_by(load_all([tmp_path]), "auc"))


# On the terminal


def test_the_algorithm_that_serves_the_worst_best_leads():
    assert leading(MEASURES["auc"], [[0.9, 0.5], [0.8, 0.7]]) == [False, True]
    assert leading(MEASURES["log-loss"], [[0.1, 0.5], [0.3, 0.6]]) == [True, False]
    assert leading(MEASURES["auc"], [[0.9, None], [0.8, 0.7]]) == [False, False]
    assert leading(MEASURES["auc"], [[0.9, 0.5]]) == [False]


def test_a_run_prints_the_measure_that_it_is_judged_by(command, tmp_path):
    (tmp_path / "digits.toml").write_text(tiny("evaluation.measure=log-loss").toml())
    ended = command("run", tmp_path / "digits.toml", "--out", tmp_path / "run", "--json")
    assert ended.code == 0, ended.err
    assert "Log loss of the final models, lower is better" in ended.err
    (summary,) = json.loads(ended.out)["algorithms"].values()
    assert (
        summary["measures"]["log-loss"]["clusters"][1]["low"] < summary["measures"]["log-loss"]["clusters"][1]["high"]
    )
