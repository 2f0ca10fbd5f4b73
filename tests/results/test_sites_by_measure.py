"""Sites of which nobody knows who is alike, judged by other measures than accuracy."""

import json

import numpy as np
import pytest

from facade.analysis.sites import by_site, site_numbers, sites_of
from facade.analysis.table import tabulate
from facade.report import charts, facts, site_charts
from facade.report.page import report
from facade.report.verdicts import verdicts
from facade.runs.history import judged_by, load_all
from handmade import write_sites

NAMES = ["Basel", "Bern", "Chur", "Genf"]
AUC = {"el": [0.9, None, 0.85, 0.7], "local": [0.8, None, 1.0, 0.75]}
LOSS = {"el": [0.3, 0.4, 0.5, 1.4], "local": [0.5, 0.5, 0.5, 1.2]}


def measured_sites(path, auc, loss, *settings):
    """A run of four sites whose final models have these AUCs (None: a class is missing) and log losses."""
    write_sites(path, [9, 8, 8, 6], *settings)
    rows = [json.loads(line) for line in (path / "rows.jsonl").read_text().splitlines()]
    for row in rows:
        if "confusion" in row:
            area = auc[row["node"]]
            known = None if area is None else [area, 0.0004 if area < 1 else 0.0]
            row["measures"] = {"auc": known, "log_loss": [loss[row["node"]], 0.04], "calibration_error": 0.1}
    (path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def runs(tmp_path):
    for name in AUC:
        measured_sites(tmp_path / name, AUC[name], LOSS[name], f"algorithm.name={name}")
    return tmp_path


def el_by(runs, measure):
    el, local = judged_by(load_all([runs]), measure)
    return sites_of([el], [el, local])


def test_a_site_without_an_auc_is_neither_the_worst_nor_the_best(runs):
    sites = el_by(runs, "auc")
    assert (sites.name(sites.worst), sites.name(sites.best)) == ("Genf", "Basel")
    numbers = site_numbers(sites)
    assert numbers["worst_site"].mean == 0.7
    assert numbers["gap_between_sites"].mean == pytest.approx(0.2)
    assert numbers["worst_gain_over_local"].mean == pytest.approx(-0.15), "Chur's"
    assert numbers["mean_gain_over_local"].mean == pytest.approx((0.1 - 0.15 - 0.05) / 3)
    each = by_site(sites)
    assert each["auc:Bern"].points == each["gain_over_local:Bern"].points == [None]
    low, high, kind = each["auc:Genf"].interval
    assert (low, high) == (pytest.approx(0.66, abs=0.01), pytest.approx(0.74, abs=0.01))
    assert kind == "test-set noise only"


def test_an_auc_of_one_gives_no_interval_that_would_pass_for_certainty(runs):
    each = by_site(el_by(runs, "auc"))
    assert each["gain_over_local:Chur"].mean == pytest.approx(-0.15)
    assert each["gain_over_local:Chur"].interval is None
    assert each["gain_over_local:Genf"].interval is not None


def test_whoever_always_gives_the_same_answer_has_no_certain_balanced_accuracy(tmp_path):
    write_sites(tmp_path / "run", [9, 8, 8, 6], "algorithm.name=el")
    rows = [json.loads(line) for line in (tmp_path / "run" / "rows.jsonl").read_text().splitlines()]
    for row in rows:
        if "confusion" in row and row["node"] == 3:
            row["confusion"] = [[10, 0], [10, 0]]
    (tmp_path / "run" / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    each = by_site(sites_of(judged_by(load_all([tmp_path]), "balanced-accuracy")))
    assert (each["balanced-accuracy:Genf"].mean, each["balanced-accuracy:Genf"].interval) == (0.5, None)
    assert each["balanced-accuracy:Bern"].interval is not None


def test_where_less_is_better_the_worst_site_is_the_highest_and_no_interval_ends_at_one(runs):
    sites = el_by(runs, "log-loss")
    numbers = site_numbers(sites)
    assert (sites.name(sites.worst), sites.name(sites.best)) == ("Genf", "Basel")
    assert numbers["worst_site"].mean == 1.4
    assert numbers["worst_site"].interval.low < 1.4 < numbers["worst_site"].interval.high
    assert numbers["gap_between_sites"].mean == pytest.approx(1.1)
    assert numbers["gap_between_sites"].interval.high > 1.1
    assert by_site(sites)["gain_over_local:Basel"].mean == pytest.approx(0.2)
    assert numbers["worst_gain_over_local"].mean == pytest.approx(-0.2)
    table = tabulate(judged_by(load_all([runs]), "log-loss"))
    better = {column.name: column.better for column in table.columns}
    assert better["worst_site"] == better["all"] == better["gap_between_sites"] == "lower"
    assert better["worst_gain_over_local"] == "higher"


def test_over_seeds_a_site_counts_that_has_the_measure_with_all_of_them(tmp_path):
    for seed, auc in {1: [0.9, 0.1, 0.8, 0.7], 2: [0.8, None, 0.8, 0.6]}.items():
        measured_sites(tmp_path / str(seed), auc, LOSS["el"], "algorithm.name=el", f"seed={seed}")
    sites = sites_of(judged_by(load_all([tmp_path]), "auc"))
    assert sites.name(sites.worst) == "Genf"
    assert sites.values.of(1).points == [0.1, None]
    assert sites.values.of(1).interval is None
    assert sites.values.of(3).interval.accounts_for == "seeds"


def test_tables_show_the_measure_of_every_site(command, runs):
    shown = command("show", runs, "--markdown", "--measure", "auc").out
    assert "| Bern | 5 | 20 | - | - | - |" in shown
    assert "| Genf | 5 | 20 | 0.700 [0.6" in shown
    assert "-0.050 [" in shown
    assert "Sites: log loss, and gains, which are positive where it is lower" in " ".join(
        command("show", runs, "--measure", "log-loss").out.split()
    )


@pytest.mark.parametrize(
    ("contract", "code", "words"),
    [
        ('measure = "auc"\nmin_site = 0.65', 0, "min_site = 0.65 (AUC): kept, 0.7000"),
        ('measure = "auc"\nmin_site = 0.72', 1, "the worst site is Genf"),
        ('measure = "auc"\nmin_gain = 0.0', 1, "Chur gains least"),
        ('measure = "log-loss"\nmax_site = 1.5\nmax_gap_between_sites = 1.2', 0, "the best is Basel, the worst Genf"),
        ('measure = "log-loss"\nmin_site = 0.5', 2, "of which less is better; use max_site"),
        ('measure = "auc"\nmax_site = 0.5', 2, "of which more is better; use min_site"),
        ('measure = "log-loss"\nmax_gap = 0.5', 2, "use clauses about sites: max_site, min_gain, max_gap_between"),
    ],
)
def test_the_gate_judges_sites_by_the_measure(command, runs, tmp_path, contract, code, words):
    file = tmp_path / "contract.toml"
    file.write_text(contract)
    ended = command("check", runs / "el", "--contract", file, "--against", runs / "local")
    assert ended.code == code
    assert words in " ".join((ended.out + ended.err).split())


@pytest.mark.parametrize("measure", ["auc", "log-loss", "calibration-error"])
def test_pages_speak_of_the_measure_of_sites(runs, measure):
    judged = judged_by(load_all([runs]), measure)
    (comparison,) = facts.comparisons(judged)
    for figure in charts.of_comparison(comparison):
        for panel in figure.panels:
            panel.chart.to_dict(validate=True)
            numbers = [value for row in panel.rows for value in row.values() if isinstance(value, float)]
            assert np.isfinite(numbers).all(), figure.id
    lines = site_charts.over_rounds(comparison).panels[0].rows
    assert {row["site"] for row in lines} == set(NAMES) - ({"Bern"} if measure == "auc" else set())
    assert judged[0].measure.word in report(judged)


def test_verdicts_say_what_sites_gain_by_the_measure(runs):
    measured_sites(runs / "facade", [0.95, None, 0.9, 0.9], [0.2, 0.4, 0.5, 0.3], "algorithm.name=facade")
    (by_loss,) = facts.comparisons(judged_by(load_all([runs]), "log-loss"))
    el, _, over_local, _ = verdicts(by_loss)
    assert el.startswith(
        "facade serves the worst site better than el by 0.900: log loss 0.500 (Chur) against 1.400 (Genf)"
    )
    assert over_local.startswith(
        "Over training alone, sites gain 0.325 in log loss on average by facade; Chur gains least: +0.000 ["
    )
    assert "1 of 4 sites is clearly better off (Genf)" in over_local
    (by_auc,) = facts.comparisons(judged_by(load_all([runs]), "auc"))
    assert "AUC 0.900 (Chur) against 0.700 (Genf)" in verdicts(by_auc)[0]


def test_runs_that_are_older_than_the_measures_have_no_worst_site(tmp_path, command):
    for name in ("el", "facade", "local"):
        write_sites(tmp_path / name, [9, 8, 8, 6], f"algorithm.name={name}")
    old = judged_by(load_all([tmp_path]), "auc")
    assert sites_of(old[:1], old).worst is None
    (comparison,) = facts.comparisons(old)
    assert verdicts(comparison)[0] == "facade and el cannot be compared: a run has no AUC."
    assert "NaN" not in "".join(json.dumps(p.rows) for f in charts.of_comparison(comparison) for p in f.panels)
    assert report(old)
    assert command("show", tmp_path, "--measure", "auc").code == 0
