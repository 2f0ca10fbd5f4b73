import json
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from handmade import write_run

SETTLED = [(1, [0, 0, 0, 1])] * 2
SHARED = [(1, [0, 0, 0, 0])] * 2
PLAIN = [(1, None)] * 2


@pytest.fixture
def check(command, tmp_path):
    def call(clauses, *runs, **options):
        (tmp_path / "fair.toml").write_text(clauses)
        more = [part for name, value in options.items() for part in (f"--{name}", value)]
        return command("check", *runs, "--contract", tmp_path / "fair.toml", *more)

    return call


@pytest.fixture
def good(tmp_path):
    return write_run(tmp_path / "good", SETTLED, {}, [9, 9, 9, 8])


KEPT = {
    "min_cluster_accuracy = 0.8": "kept, 0.8000",
    "max_gap = 0.11": "kept, 0.1000",
    "max_equalized_odds = 0.25": "kept, 0.2000",
    "min_fair_accuracy = 0.86": "kept, 0.8667",
    "must_separate = true": "kept; true in 1 of 1 run",
    "must_settle = true": "kept; true in 1 of 1 run",
}
BROKEN = {
    "min_cluster_accuracy = 0.81": "broken, 0.8000",
    "max_gap = 0.09": "broken, 0.1000",
    "max_equalized_odds = 0.19": "broken, 0.2000",
    "min_fair_accuracy = 0.87": "broken, 0.8667",
}


@pytest.mark.parametrize("clause", KEPT)
def test_a_kept_clause_leaves_with_0_and_says_its_value(check, good, clause):
    ended = check(clause, good)
    assert ended.code == 0, ended.out
    assert f"{clause}: {KEPT[clause]}" in ended.out


def test_runs_of_local_among_the_runs_are_what_gains_are_measured_against(check, good, tmp_path):
    write_run(tmp_path / "local", PLAIN, {}, [7, 7, 7, 7], "algorithm.name=local")
    ended = check("min_gain_over_local = 0.05", good, tmp_path / "local")
    assert "min_gain_over_local = 0.05: kept, 0.1000" in ended.out
    assert ended.code == 0, "what the others are measured against gains nothing over itself, and need not"


def test_where_all_runs_are_local_their_gain_cannot_be_judged(check, tmp_path):
    for lr, right in {0.05: 7, 0.1: 8}.items():
        write_run(tmp_path / f"{lr}", PLAIN, {}, [right] * 4, "algorithm.name=local", f"training.lr={lr}")
    ended = check("min_gain_over_local = 0.05", tmp_path / "0.05", tmp_path / "0.1")
    assert ended.code == 2
    assert ended.out.count("min_gain_over_local = 0.05: not judged") == 2


@pytest.mark.parametrize("heads", ["2", "auto"])
def test_heads_chosen_on_test_data_are_not_judged_by_their_accuracy(check, tmp_path, heads):
    settings = ("evaluation.head=oracle", "algorithm.seeding=class-means", f"algorithm.heads={heads}")
    chosen = SETTLED if heads == "2" else SHARED
    oracle = write_run(tmp_path / "oracle", chosen, {}, [9, 9, 9, 8], *settings)
    ended = check("min_cluster_accuracy = 0.5\nmust_settle = true", oracle)
    assert ended.code == (2 if heads == "2" else 1)
    assert "min_cluster_accuracy = 0.5: not judged; evaluation.head = 'oracle': tested" in ended.out
    assert ("must_settle = true: kept" in ended.out) == (heads == "2")


@pytest.mark.parametrize("clause", BROKEN)
def test_a_broken_clause_leaves_with_1_and_says_value_and_interval(check, good, clause):
    ended = check(clause, good)
    assert ended.code == 1
    assert f"{clause}: {BROKEN[clause]} [" in ended.out
    assert "(test-set noise only)" in ended.out


@pytest.mark.parametrize("clause", [clause for clause in KEPT if "cluster_accuracy" not in clause])
def test_what_is_between_clusters_is_not_judged_where_there_are_not_two(check, tmp_path, clause):
    alike = write_run(tmp_path / "alike", SETTLED, {}, [9, 9, 9, 8], "data.clusters=4", cluster=(0, 0, 0, 0))
    ended = check(clause, alike)
    assert ended.code == 2
    assert "not judged" in ended.out


@pytest.mark.parametrize("clause", KEPT)
def test_a_clause_about_clusters_is_refused_where_they_are_not_known(check, tmp_path, clause):
    unknown = write_run(tmp_path / "unknown", SETTLED, {}, [9, 9, 9, 8], "data.clusters=4", cluster=None)
    ended = check(f"{clause}\nmin_site = 0.1", unknown)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert f"{clause.split()[0]} is about clusters, but {unknown} does not know which sites are alike" in ended.err
    assert "use clauses about sites: min_site, min_gain, max_gap_between_sites" in ended.err


def test_a_shared_head_breaks_the_clauses_about_heads(check, tmp_path, good):
    bad = write_run(tmp_path / "bad", SHARED, {}, [9, 9, 9, 8], "seed=2")
    ended = check("must_separate = true\nmust_settle = true", good, bad)
    assert ended.code == 1
    assert "must_separate = true: broken; true in 1 of 2 runs" in ended.out
    assert "must_settle = true: broken; true in 1 of 2 runs" in ended.out


def test_a_limit_inside_the_interval_is_said(check, good):
    text = check("min_cluster_accuracy = 0.79", good).out
    assert "but the limit lies inside the interval" in text
    assert "but the limit" not in check("min_cluster_accuracy = 0.2", good).out


def test_the_gain_over_local_needs_runs_to_compare_with(check, tmp_path, good):
    clause = "min_gain_over_local = 0.05"
    ended = check(clause, good)
    assert ended.code == 2
    assert "not judged; it needs runs of 'local'" in ended.out
    local = write_run(tmp_path / "local", PLAIN, {}, [7, 7, 7, 7], "algorithm.name=local")
    assert f"{clause}: kept, 0.1000" in check(clause, good, against=local).out
    assert check("min_gain_over_local = 0.15", good, against=local).code == 1
    other = write_run(tmp_path / "other", PLAIN, {}, [7, 7, 7, 7], "algorithm.name=local", "data.skew=none")
    assert check(clause, good, against=other).code == 2, "other data are no comparison"
    brief = write_run(tmp_path / "brief", PLAIN, {}, [2] * 4, "algorithm.name=local", "training.steps=7")
    text = check(clause, good, against=brief).out
    assert "mind that 'local' was trained with training.steps = 7 instead of 1" in text


def test_what_cannot_be_judged_leaves_with_2_unless_something_is_broken(check, tmp_path):
    el = write_run(tmp_path / "el", PLAIN, {}, [9, 9, 9, 8], "algorithm.name=el")
    ended = check("must_settle = true\nmax_gap = 0.2", el)
    assert ended.code == 2
    assert "must_settle = true: not judged; the algorithm has no heads" in ended.out
    assert check("must_settle = true\nmax_gap = 0.01", el).code == 1


def test_every_experiment_is_judged_by_itself(check, tmp_path, good):
    worse = write_run(tmp_path / "worse", PLAIN, {}, [9, 9, 9, 2], "algorithm.name=el")
    ended = check("max_gap = 0.2", good, worse)
    assert ended.code == 1
    assert "1 of 2 clauses kept, 1 broken" in ended.out


def test_of_two_runs_of_one_experiment_with_other_results_none_is_judged(check, tmp_path, good):
    again = write_run(tmp_path / "again", SETTLED, {}, [9, 9, 9, 2])
    ended = check("max_gap = 0.11", good, again)
    assert ended.code == 2
    assert "repeats the experiment and seed of" in ended.err
    assert "with other results; say which of the two counts" in ended.err


def test_an_unfinished_run_is_no_pass(check, tmp_path, good):
    half = write_run(tmp_path / "half", SETTLED, {}, [9, 9, 9, 8], "seed=2")
    rows = half / "rows.jsonl"
    rows.write_text("".join(rows.read_text().splitlines(keepends=True)[:4]))
    ended = check("max_gap = 0.2", good, half)
    assert ended.code == 2
    assert "half is not finished (round 1 of 2)" in ended.err


def test_an_old_run_is_judged_by_a_metric_it_never_heard_of(check, good, monkeypatch):
    from facade.analysis import metrics

    (good / "result.json").write_text("{}")
    monkeypatch.setitem(metrics.GROUP_METRICS, "eo", lambda groups: 0.123)
    assert "max_equalized_odds = 0.2: kept, 0.1230" in check("max_equalized_odds = 0.2", good).out


def test_junit_has_one_case_per_clause(check, tmp_path, good):
    ended = check("max_gap = 0.01\nmin_fair_accuracy = 0.5\nmin_gain_over_local = 0", good, junit=tmp_path / "j.xml")
    assert ended.code == 1
    suite = ET.parse(tmp_path / "j.xml").getroot()
    assert [suite.get(key) for key in ("tests", "failures", "errors")] == ["3", "1", "1"]
    outcomes = {case.get("name"): case[0].tag for case in suite}
    assert outcomes == {"max_gap": "failure", "min_fair_accuracy": "system-out", "min_gain_over_local": "error"}
    assert "broken, 0.1000" in suite[0][0].get("message")


BAD = {
    "max_gab = 0.1": "unknown clause 'max_gab'; did you mean 'max_gap'?",
    "min_cluster_accuracy = 80": "min_cluster_accuracy = 80 makes no sense; expected a number from 0 to 1",
    "max_gap = true": "max_gap = True makes no sense",
    "must_settle = 1": "expected true or false",
    "must_settle = false": "has no clause",
    "": "has no clause",
    "[max_gap": "is not valid TOML",
}


@pytest.mark.parametrize("clauses", BAD)
def test_a_contract_that_makes_no_sense_is_refused_in_a_sentence(check, good, clauses):
    ended = check(clauses, good)
    assert ended.code == 2
    assert BAD[clauses] in ended.err
    assert ended.err.count("\n") == 1


def test_a_missing_contract_is_refused(command, good, tmp_path):
    ended = command("check", good, "--contract", tmp_path / "none.toml")
    assert ended.code == 2
    assert "cannot be read" in ended.err


def test_verdicts_that_cannot_be_written_are_no_broken_clause(check, tmp_path, good):
    (tmp_path / "taken").touch()
    ended = check("max_gap = 0.2", good, junit=tmp_path / "taken" / "j.xml")
    assert ended.code == 2
    assert f"--junit: {tmp_path}/taken/j.xml could not be written" in ended.err


def test_for_programs_the_verdicts_are_one_line_of_json(command, good, tmp_path):
    (tmp_path / "fair.toml").write_text("max_gap = 0.09\nmust_settle = true")
    ended = command("check", good, "--contract", tmp_path / "fair.toml", "--json")
    assert (ended.code, "1 of 2 clauses kept" in ended.err) == (1, True)
    gap, settle = json.loads(ended.out)["verdicts"]
    assert (gap["clause"], gap["limit"], gap["outcome"]) == ("max_gap", 0.09, "broken")
    assert gap["mean"] == pytest.approx(0.1)
    assert gap["interval"]["low"] < 0.1 < gap["interval"]["high"]
    assert (settle["limit"], settle["outcome"]) == (True, "kept")


def test_a_limit_above_the_interval_is_not_inside_it(check, good):
    text = check("min_cluster_accuracy = 0.999", good).out
    assert "broken" in text
    assert "but the limit" not in text


def test_a_mean_that_is_below_its_limit_by_rounding_alone_keeps_it(check, tmp_path):
    runs = [
        write_run(tmp_path / str(seed), PLAIN, {}, [7] * 4, f"seed={seed}", "algorithm.name=el") for seed in (1, 2, 3)
    ]
    assert np.mean([0.7] * 3) < 0.7
    assert check("min_cluster_accuracy = 0.7", *runs).code == 0


def test_a_clause_whose_number_one_seed_lacks_is_not_judged(check, tmp_path):
    whole, lacking = (write_run(tmp_path / str(s), SETTLED, {}, [9, 9, 9, 8], f"seed={s}") for s in (1, 2))
    rows = [json.loads(line) for line in (lacking / "rows.jsonl").read_text().splitlines()]
    for row in rows:
        if "confusion" in row and row["node"] == 3:
            row["confusion"] = [[8, 2], [0, 0]]
    (lacking / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    ended = check("max_equalized_odds = 2.0", whole, lacking)
    assert ended.code == 2
    assert "not judged" in ended.out
