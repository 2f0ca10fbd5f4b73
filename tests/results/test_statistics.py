import json

import numpy as np
import pytest
from scipy import stats

from facade.analysis import metrics, statistics
from facade.analysis.resampling import RESAMPLES, resampled
from facade.analysis.statistics import (
    SEEDS,
    TEST_NOISE,
    alone,
    cost_to,
    estimates,
    numbers,
    settlement,
    student_interval,
)
from facade.export import model_card
from facade.runs import history
from handmade import confusion, write_run


@pytest.mark.parametrize("points", [[0.5, 0.7], [0.1, 0.2, 0.4], list(np.linspace(0, 1, 9) ** 2)])
def test_the_interval_over_seeds_is_student_t(points):
    low, high, kind = student_interval(points)
    expected = stats.t.interval(0.95, len(points) - 1, loc=np.mean(points), scale=stats.sem(points))
    assert (low, high) == pytest.approx(expected, abs=1e-12)
    assert kind == SEEDS


def test_intervals_leave_out_what_cannot_be(tmp_path):
    runs = [
        history.load(write_run(tmp_path / str(seed), QUIET, {}, right, f"seed={seed}"))
        for seed, right in ((1, [10, 10, 10, 10]), (2, [10, 10, 10, 1]))
    ]
    found = estimates(runs)
    assert (found["cluster_1"].interval.low, found["cluster_1"].interval.high) == (0, 1)
    assert (found["eo"].interval.low, found["eo"].interval.high) == (0, 2)
    lost = statistics.possible("worst_gain", statistics.Interval(-1.3, 0.4, SEEDS))
    assert (lost.low, lost.high) == (-1, 0.4)


def test_one_seed_has_no_interval_over_seeds():
    assert student_interval([0.5]) is None


QUIET = [(100, None)] * 4


def test_noise_does_not_pretend_a_gap_between_clusters_that_do_alike(tmp_path):
    run = history.load(write_run(tmp_path / "r", QUIET, {}, [8] * 4))
    low, high, _ = estimates([run])["gap"].interval
    assert low == 0 < high


def test_a_cluster_that_gets_everything_wrong_counts_in_the_fair_accuracy_of_means(tmp_path):
    runs = [history.load(write_run(tmp_path / f"{s}", QUIET, {}, [9, 9, 9, 0], f"seed={s}")) for s in (1, 2)]
    assert estimates(runs)["fair_accuracy_of_means"].mean == pytest.approx(2 / 3 * 0.45 + 0.1 / 3)


def test_gains_are_measured_against_the_best_trained_local_run(tmp_path):
    ours = history.load(write_run(tmp_path / "el", QUIET, {}, [9] * 4, "algorithm.name=el"))
    local = [
        history.load(write_run(tmp_path / f"{r}", QUIET, {}, [r] * 4, "algorithm.name=local", f"training.lr=0.{r}"))
        for r in (2, 6, 4)
    ]
    assert numbers(ours, local=local)["worst_gain"] == pytest.approx(0.3)


def test_bytes_and_rounds_to_a_target_are_those_of_the_first_evaluation_that_reaches_it(tmp_path):
    rounds = [(100, None), (300, None), (100, None), (50, None)]
    run = history.load(write_run(tmp_path / "r", rounds, {2: [6, 6, 6, 2], 4: [9, 9, 9, 5]}, [9, 9, 9, 9]))
    assert cost_to(run, 0.5) == (2, 400.0)
    assert cost_to(run, 0.51) == (4, 550.0)
    assert cost_to(run, 0.85) == (4, 1550.0), "only the models after the final exchange reach it, so it counts"
    assert cost_to(run, 0.95) is None


def test_final_and_highest_observed_are_different_numbers(tmp_path):
    run = history.load(write_run(tmp_path / "r", QUIET, {2: [9, 9, 9, 9], 4: [6, 6, 6, 4]}, [8, 8, 8, 4]))
    found = numbers(run)
    assert found["all"] == pytest.approx(0.7)
    assert found["highest_all"] == pytest.approx(0.9)
    assert found["fair_accuracy"] == pytest.approx(2 / 3 * 0.6 + 1 / 3 * 0.6)
    assert found["highest_fair_accuracy"] == pytest.approx(2 / 3 * 0.9 + 1 / 3)
    assert (found["gap"], found["worst_cluster"], found["worst_node"]) == pytest.approx((0.4, 0.4, 0.4))
    assert (found["bytes_per_node"], found["bytes_final"]) == (400, 1000)


def test_over_seeds_there_is_the_mean_the_population_std_and_every_point(tmp_path):
    finals = {1: [8, 8, 8, 6], 2: [9, 9, 9, 8], 3: [7, 7, 7, 7]}
    runs = [history.load(write_run(tmp_path / str(s), QUIET, {}, final, f"seed={s}")) for s, final in finals.items()]
    found = estimates(runs)
    minority = found["cluster_1"]
    assert minority.points == pytest.approx([0.6, 0.8, 0.7])
    assert (minority.mean, minority.std) == pytest.approx((np.mean([0.6, 0.8, 0.7]), np.std([0.6, 0.8, 0.7])))
    assert minority.interval == student_interval(minority.points)
    fair = [metrics.fair_accuracy(np.array(pair)) for pair in ([0.8, 0.6], [0.9, 0.8], [0.7, 0.7])]
    assert found["fair_accuracy"].mean == pytest.approx(np.mean(fair))
    assert found["fair_accuracy_of_means"].mean == pytest.approx(metrics.fair_accuracy(np.array([0.8, 0.7])))


def test_a_number_that_one_seed_does_not_have_gets_no_mean(tmp_path):
    first = history.load(write_run(tmp_path / "1", QUIET, {2: [9] * 4}, [9] * 4, "seed=1"))
    second = history.load(write_run(tmp_path / "2", QUIET, {2: [5] * 4}, [5] * 4, "seed=2"))
    reached = estimates([first, second], target=0.8)["rounds_to_target"]
    assert reached.points == [2.0, None]
    assert (reached.mean, reached.interval) == (None, None)


def test_a_single_run_gets_the_noise_of_its_test_set(tmp_path):
    run = history.load(write_run(tmp_path / "r", QUIET, {}, [8, 8, 8, 5]))
    found = estimates([run])
    low, high, kind = found["cluster_0"].interval
    assert kind == TEST_NOISE
    spread = np.sqrt(0.8 * 0.2 / 20)  # 20 images; nodes that share a test set add no images
    assert (high - low) / 2 == pytest.approx(1.96 * spread, rel=0.15)
    assert low < 0.8 < high
    assert found["fair_accuracy"].interval.low < found["fair_accuracy"].mean < found["fair_accuracy"].interval.high
    assert estimates([run]) == found, "the same run gets the same interval every time"


def test_many_test_sets_give_a_narrower_interval_than_one(tmp_path):
    shared = history.load(write_run(tmp_path / "shared", QUIET, {}, [8] * 4, cluster=(0, 0, 0, 0)))
    own = history.load(write_run(tmp_path / "own", QUIET, {}, [8] * 4, cluster=None))
    widths = [e.high - e.low for e in (estimates([run])["all"].interval for run in (shared, own))]
    assert widths[0] / widths[1] == pytest.approx(2, rel=0.15)


def test_gain_over_local_is_per_node_and_needs_the_run_with_the_same_seed_and_data(tmp_path):
    run = history.load(write_run(tmp_path / "run", QUIET, {}, [9, 9, 9, 5]))
    alone = history.load(write_run(tmp_path / "local", QUIET, {}, [7, 8, 7, 6], "algorithm.name=local"))
    other = history.load(write_run(tmp_path / "seed2", QUIET, {}, [1] * 4, "algorithm.name=local", "seed=2"))
    assert statistics.gains(run, alone).tolist() == pytest.approx([0.2, 0.1, 0.2, -0.1])
    found = numbers(run, local=[other, alone])
    assert (found["mean_gain"], found["worst_gain"]) == pytest.approx((0.1, -0.1))
    assert "worst_gain" not in numbers(run, local=[other])
    interval = estimates([run], local=[alone])["worst_gain"].interval
    assert interval.low < -0.1 < interval.high


def test_settlement_is_per_round_and_cluster_with_the_round_it_came_to_rest(tmp_path):
    choices = [[0, 0, 0, 0], [0, 1, 0, 2], [0, 0, 0, 2], [0, 0, 0, 1], [0, 0, 0, 1]]
    settings = ("algorithm.heads=4",)
    run = history.load(write_run(tmp_path / "r", [(1, c) for c in choices], {}, [5] * 4, *settings))
    heads = settlement(run)
    assert heads.shares[1].tolist() == [[2 / 3, 1 / 3, 0, 0], [0, 0, 1, 0]]
    assert heads.settling_round == 3
    assert (heads.unused, heads.shared) == ([2, 3], [])
    restless = [*choices, [0, 0, 1, 1]]
    run = history.load(write_run(tmp_path / "s", [(1, c) for c in restless], {}, [5] * 4, *settings))
    heads = settlement(run)
    assert heads.settling_round is None
    assert (heads.unused, heads.shared) == ([2, 3], [1])


@pytest.mark.parametrize("cluster", [None, (0, 0, 0, 0)])
def test_where_clusters_are_not_known_heads_are_told_of_all_nodes(tmp_path, cluster):
    rounds = [(1, [0, 0, 1, 1]), (1, [0, 0, 0, 1])]
    run = history.load(write_run(tmp_path / "run", rounds, {}, [9, 9, 6, 8], "algorithm.heads=3", cluster=cluster))
    found = settlement(run)
    assert found.shares.tolist() == [[[0.5, 0.5, 0]], [[0.75, 0.25, 0]]]
    assert (found.settling_round, found.unused, found.shared) == (None, [2], [])
    told = numbers(run)
    assert told["worst_head"] == pytest.approx(0.8)
    assert not {"gap", "fair_accuracy", "eo", "separated", "settled", "settling_round"} & set(told)


def test_algorithms_without_heads_have_no_settlement(tmp_path):
    assert settlement(history.load(write_run(tmp_path / "r", QUIET, {}, [5] * 4, "algorithm.name=el"))) is None


def test_a_run_of_the_first_version_without_test_sets_named_is_still_read(tmp_path):
    path = write_run(tmp_path / "r", QUIET, {}, [8, 8, 8, 5])
    facts = json.loads((path / "federation.json").read_text())
    del facts["test_of"]
    (path / "federation.json").write_text(json.dumps(facts))
    assert estimates([history.load(path)])["all"].mean == pytest.approx(0.725)


def test_images_are_drawn_one_by_one_where_there_are_more_cells_than_images():
    classes, images = 62, 30
    draw = np.random.default_rng(1)
    test_of = np.array([0, 0, 1, 2])
    truth = draw.integers(classes, size=(3, images))[test_of]
    confusion = np.zeros((4, classes, classes), np.int64)
    for node in range(4):
        np.add.at(confusion[node], (truth[node], draw.integers(classes, size=images)), 1)
    drawn = np.stack(list(resampled(confusion, test_of)))
    assert drawn.shape == (RESAMPLES, 4, classes, classes)
    assert (drawn.sum((2, 3)) == images).all()
    assert (drawn[:, 0] == drawn[:, 1]).all(), "nodes that share a test set share the draw"
    assert (drawn[:, 0] != drawn[:, 2]).any()
    together = np.stack([confusion[:2].mean(0), confusion[2], confusion[3]])
    assert np.abs(drawn[:, [0, 2, 3]].mean(0) - together).max() < 0.3  # five standard errors
    assert not drawn[:, [0, 2, 3]].any(0)[together == 0].any()


def test_training_alone_on_other_data_or_test_images_is_nothing_to_compare_with(tmp_path):
    ours = history.load(write_run(tmp_path / "a", QUIET, {}, [9] * 4, "algorithm.name=el"))
    fewer = write_run(tmp_path / "b", QUIET, {}, [7] * 4, "algorithm.name=local", "evaluation.images=5")
    other = write_run(tmp_path / "c", QUIET, {}, [7] * 4, "algorithm.name=local")
    facts = json.loads((other / "federation.json").read_text())
    (other / "federation.json").write_text(json.dumps(facts | {"images": [7] * 4}))
    assert alone(ours, [history.load(fewer), history.load(other)]) is None


def test_the_hand_made_matrix_is_balanced():
    assert confusion(8) == [[8, 2], [2, 8]]


def test_intervals_of_bytes_and_rounds_are_no_shares(tmp_path):
    runs = [
        history.load(write_run(tmp_path / str(seed), [(100 * seed, None)] * 4, {2: [9] * 4}, [9] * 4, f"seed={seed}"))
        for seed in (1, 2)
    ]
    found = estimates(runs, target=0.5)
    assert found["bytes_per_node"].interval.high > 600
    assert found["rounds_to_target"].interval[:2] == (2, 2)


def test_another_model_that_trained_alone_is_no_comparison(tmp_path):
    ours = history.load(write_run(tmp_path / "el", QUIET, {}, [9] * 4, "algorithm.name=el"))
    other = history.load(write_run(tmp_path / "cnn", QUIET, {}, [5] * 4, "algorithm.name=local", "model.name=cnn"))
    assert "worst_gain" not in numbers(ours, local=[other])


def test_the_noise_of_a_gain_is_that_of_two_runs(tmp_path):
    ours = history.load(write_run(tmp_path / "run", QUIET, {}, [8] * 4, "algorithm.name=el"))
    other = history.load(write_run(tmp_path / "local", QUIET, {}, [8] * 4, "algorithm.name=local"))
    gain, own = (estimates([ours], local=[other])[name].interval for name in ("mean_gain", "all"))
    assert (gain.high - gain.low) / (own.high - own.low) == pytest.approx(2**0.5, rel=0.15)


def test_the_interval_of_the_worst_node_lies_around_it(tmp_path):
    run = history.load(write_run(tmp_path / "r", QUIET, {}, [9, 8, 7, 5]))
    low, high, _ = estimates([run])["worst_node"].interval
    nodes = metrics.accuracy(run.final.confusion)
    moved = np.array([metrics.accuracy(drawn) for drawn in resampled(run.final.confusion, run.test_of)])
    lowest = (nodes + moved - moved.mean(0)).min(1)
    assert (low, high) == pytest.approx(np.quantile(lowest, [0.025, 0.975]) - lowest.mean() + nodes.min())


def test_all_answers_right_are_no_certainty(tmp_path):
    found = estimates([history.load(write_run(tmp_path / "run", QUIET, {}, [10, 10, 10, 10]))])
    # Jeffreys' interval for 20 of 20, at both test sets.
    for name in ("cluster_0", "cluster_1"):
        assert found[name].interval[:2] == (pytest.approx(stats.beta.ppf(0.025, 20.5, 0.5), abs=0.01), 1.0)
    assert found["gap"].interval.low == 0 < found["gap"].interval.high
    assert found["worst_cluster"].interval.low < found["cluster_0"].interval.low
    assert found["eo"].mean == 0
    assert found["eo"].interval is None, "no draw changes it, and nobody knows how sure it is"


def test_a_model_card_claims_no_certainty_where_all_answers_were_right(tmp_path):
    run = history.load(write_run(tmp_path / "run", QUIET, {}, [10, 10, 10, 9]))
    assert "| 100.0% | 88.4% to 100.0% | 20 |" in model_card._accuracies(run, [0, 1, 2])
