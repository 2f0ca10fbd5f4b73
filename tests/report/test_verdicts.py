"""The verdict: who serves the worst-served cluster best, how sure that is, and what else the two differ in."""

from facade.report import facts
from facade.report.verdicts import verdicts
from report.conftest import of, two_rounds


def test_the_verdict_names_a_clear_winner(tmp_path):
    good = two_rounds(tmp_path / "a", [9, 9, 9, 9], "algorithm.name=facade", choices=[0, 0, 0, 1])
    bad = two_rounds(tmp_path / "b", [9, 9, 9, 1], "algorithm.name=el")
    (verdict,) = verdicts(of(good, bad))
    assert verdict.startswith(
        "facade serves the worst-served cluster better than el by 80.0 points: 90.0\u00a0% against 10.0"
    )
    assert "test-set noise only" in verdict


def test_the_verdict_admits_that_two_are_alike(tmp_path):
    one = two_rounds(tmp_path / "a", [9, 9, 9, 8], "algorithm.name=facade", choices=[0, 0, 0, 1])
    other = two_rounds(tmp_path / "b", [9, 9, 9, 8], "algorithm.name=el")
    (verdict,) = verdicts(of(one, other))
    assert "too much alike to tell apart" in verdict


def test_the_verdict_compares_over_the_seeds_that_both_have(tmp_path):
    paths = [
        two_rounds(tmp_path / f"{name}{seed}", [9, 9, 9, right], f"algorithm.name={name}", f"seed={seed}")
        for name, answers in {"dac": {1: 8, 2: 7}, "el": {1: 6, 2: 6, 3: 9}}.items()
        for seed, right in answers.items()
    ]
    (verdict,) = verdicts(of(*paths))
    assert "75.0\u00a0% against 60.0\u00a0% with the 2 seeds that both have, difference 15.0" in verdict


def test_a_single_run_and_several_have_no_interval_in_common(tmp_path):
    paths = [two_rounds(tmp_path / "dac", [9, 9, 9, 9], "algorithm.name=dac")]
    paths += [two_rounds(tmp_path / f"el{s}", [9, 9, 9, s], "algorithm.name=el", f"seed={s}") for s in (2, 3)]
    (verdict,) = verdicts(of(*paths))
    assert "dac gives the worst-served cluster 90.0\u00a0%, el 25.0\u00a0%; how sure the difference is" in verdict


def test_an_interval_that_ends_at_100_percent_makes_nothing_surer(tmp_path):
    paths = [
        two_rounds(tmp_path / f"{name}{seed}", [10, 10, 10, right], f"algorithm.name={name}", f"seed={seed}")
        for name, answers in {"dac": {1: 9, 2: 10}, "el": {3: 5, 4: 6}}.items()
        for seed, right in answers.items()
    ]
    (verdict,) = verdicts(of(*paths))  # no seed in common: 95 and 55 percent, 64 points either way for both
    assert "too much alike to tell apart" in verdict
    assert "interval -49.8 to 129.8" in verdict


def test_the_verdict_says_what_else_two_experiments_differ_in(tmp_path):
    ours = two_rounds(tmp_path / "a", [9, 9, 9, 8], "algorithm.name=facade", "training.steps=5", choices=[0, 0, 0, 1])
    theirs = two_rounds(tmp_path / "b", [9, 9, 9, 3], "algorithm.name=el", "evaluation.images=10")
    (verdict,) = verdicts(of(ours, theirs))
    assert verdict.endswith("Mind that they differ in training.steps (5 against 1), evaluation.images (0 against 10).")


def test_the_verdict_says_which_learning_rates_differ(tmp_path):
    ours = two_rounds(tmp_path / "a", [9, 9, 9, 8], "training.lr=0.1", choices=[0, 0, 0, 1])
    theirs = [
        two_rounds(tmp_path / f"b{lr}", [9, 9, 9, 3], "algorithm.name=el", f"training.lr={lr}") for lr in (0.05, 0.1)
    ]
    unlike, alike = verdicts(of(ours, *theirs))
    assert unlike.endswith("0 being fair. Learning rates differ: el 0.05, facade 0.1.")
    assert "rates differ" not in alike


def test_the_verdict_says_when_heads_were_chosen_on_test_data(tmp_path):
    ours = two_rounds(tmp_path / "a", [9, 9, 9, 8], "evaluation.head=oracle", choices=[0, 0, 0, 1])
    theirs = two_rounds(tmp_path / "b", [9, 9, 9, 3], "algorithm.name=el", "evaluation.head=oracle")
    (verdict,) = verdicts(of(ours, theirs))
    assert verdict.endswith("facade: tested with heads chosen on test data.")


def test_the_verdict_on_one_experiment_says_when_heads_were_chosen_on_test_data(tmp_path):
    path = two_rounds(tmp_path / "a", [9, 9, 9, 8], "evaluation.head=oracle", choices=[0, 0, 0, 1])
    (verdict,) = verdicts(of(path))
    assert verdict.endswith("facade: tested with heads chosen on test data.")


def test_the_verdict_says_that_the_best_of_several_was_taken(tmp_path):
    paths = [
        two_rounds(tmp_path / f"{warmup}", [9, 9, 9, right], f"algorithm.warmup={warmup}", choices=[0, 0, 0, 1])
        for warmup, right in {0: 7, 1: 8}.items()
    ]
    paths.append(two_rounds(tmp_path / "el", [9, 9, 9, 3], "algorithm.name=el"))
    among, against = verdicts(of(*paths))
    assert among.endswith("facade warmup=1 is the best of 2 FACADE experiments on these very test data.")
    assert against.endswith("facade warmup=1 is the best of 2 FACADE experiments on these very test data.")


def test_the_verdict_says_that_the_best_of_several_was_taken_whoever_leads(tmp_path):
    paths = [
        two_rounds(tmp_path / f"{degree}", [9, 9, 9, right], "algorithm.name=el", f"topology.degree={degree}")
        for degree, right in {2: 7, 3: 8}.items()
    ]
    (verdict,) = verdicts(of(*paths))
    assert "Mind that they differ in topology.degree (3 against 2)." in verdict
    assert verdict.endswith("is the best of 2 experiments on these very test data.")


def test_the_verdict_says_when_heads_did_not_settle(tmp_path):
    path = two_rounds(tmp_path / "a", [9, 9, 9, 8], "algorithm.name=facade", choices=[0, 1, 0, 1])
    (verdict,) = verdicts(of(path))
    assert "did not settle with seed 1" in verdict


def test_a_cluster_that_gets_everything_wrong_is_the_worst_served(tmp_path):
    ours = two_rounds(tmp_path / "a", [5, 5, 5, 5], "algorithm.name=facade", choices=[0, 0, 0, 1])
    unfair = two_rounds(tmp_path / "b", [9, 9, 9, 0], "algorithm.name=el")
    worst = {row["who"]: row["worst"] for row in facts.prices(of(ours, unfair))}
    assert worst == {"facade": 50.0, "el": 0.0}
