import numpy as np
import pytest

from facade.analysis import metrics
from facade.paper import published
from facade.runs.result import judge
from facade.runs.running_summary import RunningSummary


@pytest.mark.parametrize("line", published.FINAL, ids="-".join)
def test_fair_accuracy_equals_the_published_values(line):
    printed = published.FINAL[line]
    found = 100 * metrics.fair_accuracy(np.array([printed.majority, printed.minority]) / 100)
    assert found == pytest.approx(printed.fair, abs=0.01)


def test_fair_accuracy_weighs_clusters_equally_and_takes_the_largest_gap():
    assert metrics.fair_accuracy(np.array([0.9, 0.6, 0.75])) == pytest.approx(2 / 3 * 0.75 + 1 / 3 * 0.7)
    assert metrics.fair_accuracy(np.array([0.8])) == pytest.approx(2 / 3 * 0.8 + 1 / 3)


def test_balanced_accuracy_is_the_mean_over_the_classes_that_were_tested():
    matrices = np.array([[[90, 0, 0], [8, 2, 0], [5, 0, 5]], [[90, 10, 0], [3, 1, 0], [0, 0, 0]]])
    assert metrics.balanced_accuracy(matrices) == pytest.approx([(1 + 0.2 + 0.5) / 3, (0.9 + 0.25) / 2])
    assert metrics.balanced_accuracy(uniform(0.7, each=9000)) == pytest.approx(0.7)


def uniform(accuracy, classes=10, each=9_000_000):
    """Counts of a classifier that errs evenly on balanced classes."""
    wrong = round(each * (1 - accuracy) / (classes - 1))
    counts = np.full((classes, classes), wrong)
    np.fill_diagonal(counts, each - wrong * (classes - 1))
    return counts


@pytest.mark.parametrize(("better", "worse"), [(0.7199, 0.3877), (0.9, 0.5), (1.0, 0.1)])
def test_odds_of_a_uniformly_worse_cluster_are_ten_ninths_of_the_gap(better, worse):
    groups = np.stack([uniform(better), uniform(worse)])
    assert metrics.equalized_odds(groups) == pytest.approx((better - worse) * 10 / 9, rel=1e-6)
    assert metrics.equalized_odds_sum(groups) == pytest.approx((better - worse) * 10, rel=1e-6)
    assert metrics.demographic_parity(groups) == pytest.approx(0, abs=1e-12)


def test_odds_of_el_at_30_to_2_follow_from_its_accuracies():
    groups = np.stack([uniform(0.7199), uniform(0.3877)])
    assert metrics.equalized_odds(groups) == pytest.approx(0.3691, abs=5e-5)


def test_odds_are_unknown_where_a_group_was_tested_on_one_class():
    groups = np.array([[[5, 5], [2, 8]], [[9, 1], [0, 0]]])
    assert metrics.equalized_odds(groups) is None
    assert metrics.equalized_odds_sum(groups) == pytest.approx(0.4)


def test_odds_of_few_classes_count_false_positives_more():
    groups = np.stack([uniform(0.9, classes=2), uniform(0.7, classes=2)])
    assert metrics.equalized_odds(groups) == pytest.approx(0.2 * 2, rel=1e-6)


def slow_rates(counts, label):
    """P(prediction = label), P(... | truth = label), P(... | truth != label), counted one by one."""
    predicted = true = hits = false = total = 0
    for truth, row in enumerate(counts.tolist()):
        for guess, number in enumerate(row):
            total += number
            predicted += number * (guess == label)
            true += number * (truth == label)
            hits += number * (guess == label == truth)
            false += number * (guess == label != truth)
    return predicted / total, hits / true, false / (total - true)


@pytest.mark.parametrize("clusters", [2, 3])
def test_parity_and_odds_equal_slow_counting(clusters):
    groups = np.random.default_rng(clusters).integers(1, 40, (clusters, 5, 5))
    rates = np.array([[slow_rates(group, label) for label in range(5)] for group in groups])
    gaps = rates.max(0) - rates.min(0)
    assert metrics.demographic_parity(groups) == pytest.approx(gaps[:, 0].mean())
    assert metrics.demographic_parity_sum(groups) == pytest.approx(gaps[:, 0].sum())
    assert metrics.equalized_odds(groups) == pytest.approx((gaps[:, 1] + gaps[:, 2]).mean())
    assert metrics.equalized_odds_sum(groups) == pytest.approx(gaps[:, 1].sum())


def test_parity_of_two_groups_is_the_mean_difference_of_predicted_shares():
    groups = np.array([[[8, 2], [2, 8]], [[10, 0], [5, 5]]])
    assert metrics.demographic_parity(groups) == pytest.approx(0.25)
    assert metrics.demographic_parity_sum(groups) == pytest.approx(0.5)


def test_a_class_absent_from_a_cluster_is_left_out():
    groups = np.array([[[6, 2, 2], [1, 8, 1], [3, 3, 4]], [[9, 1, 0], [4, 4, 2], [0, 0, 0]]])
    hits = [abs(0.6 - 0.9), abs(0.8 - 0.4)]
    false = [abs(4 / 20 - 4 / 10), abs(5 / 20 - 1 / 10)]
    shares = [abs(10 / 30 - 13 / 20), abs(13 / 30 - 5 / 20)]
    assert metrics.equalized_odds(groups) == pytest.approx((sum(hits) + sum(false)) / 2)
    assert metrics.equalized_odds_sum(groups) == pytest.approx(sum(hits))
    assert metrics.demographic_parity(groups) == pytest.approx(sum(shares) / 2)


def test_without_a_shared_class_parity_and_odds_are_null():
    groups = np.array([[[5, 1], [0, 0]], [[0, 0], [2, 4]]])
    assert [metric(groups) for metric in metrics.GROUP_METRICS.values()] == [None] * 4


def test_cluster_accuracy_is_the_mean_over_its_nodes_however_large_their_tests():
    confusion = np.array([[[1, 0], [0, 1]], [[30, 70], [0, 0]], [[3, 1], [0, 0]]])
    cluster = np.array([0, 0, 1])
    assert metrics.accuracy(confusion).tolist() == pytest.approx([1.0, 0.3, 0.75])
    assert metrics.group_accuracy(confusion, cluster).tolist() == pytest.approx([0.65, 0.75])
    assert metrics.pooled(confusion, cluster).tolist() == [[[31, 70], [0, 1]], [[3, 1], [0, 0]]]


@pytest.mark.parametrize(
    ("choice", "cluster", "separated", "settled"),
    [
        ([0, 0, 1, 1], [0, 0, 1, 1], True, True),
        ([1, 1, 0, 0], [0, 0, 1, 1], True, True),
        ([0, 2, 1, 1], [0, 0, 1, 1], True, False),
        ([0, 0, 0, 0], [0, 0, 1, 1], False, False),
        ([0, 1, 1, 1], [0, 0, 1, 1], False, False),
        ([0, 0, 0, 0], [0, 0, 0, 0], True, True),
        ([4, 2, 0], [0, 1, 2], True, True),
    ],
)
def test_heads_are_separated_and_settled(choice, cluster, separated, settled):
    assert metrics.separated(np.array(choice), np.array(cluster)) is separated
    assert metrics.settled(np.array(choice), np.array(cluster)) is settled


def rows(kind, confusions, **more):
    return [{"kind": kind, "round": 1, "node": i, "confusion": c} | more for i, c in enumerate(confusions)]


def test_all_metrics_of_an_evaluation_come_from_its_rows():
    judged = judge(rows("final", [[[9, 1], [1, 9]], [[8, 2], [2, 8]], [[5, 5], [5, 5]]]), np.array([0, 0, 1]))
    assert judged["all"] == pytest.approx((0.9 + 0.8 + 0.5) / 3)
    assert judged["worst_node"] == 0.5
    assert judged["clusters"] == pytest.approx([0.85, 0.5])
    assert judged["fair_accuracy"] == pytest.approx(2 / 3 * 0.675 + 1 / 3 * 0.65)
    assert judged["separated"] is None
    assert judged["choice"] is None


def test_without_clusters_only_nodes_are_judged():
    judged = judge(rows("final", [[[9, 1], [1, 9]]], choice=0), None)
    assert "clusters" not in judged
    assert judged["settled"] is None
    assert judged["choice"] == [0]


def test_of_a_single_cluster_nothing_is_said_between_clusters():
    judged = judge(rows("final", [[[9, 1], [1, 9]]]), np.array([0]))
    assert judged["clusters"] == [0.9]
    assert [judged[name] for name in ("dp", "eo", "fair_accuracy", "separated", "settled")] == [None] * 5


def test_bytes_of_rounds_and_of_the_final_exchange_are_kept_apart():
    heard = [{"kind": "round", "round": r, "node": i, "bytes": 10 * r + i} for r in (1, 2) for i in (0, 1)]
    summed = RunningSummary()
    for moment in (heard[:2], heard[2:], rows("final", [[[1, 0], [0, 1]]] * 2, bytes=7)):
        summed.add(moment)
    summary = summed.facts(np.array([0, 1]))
    assert summary["bytes_per_node"] == (10 + 11 + 20 + 21) / 2
    assert summary["bytes_final"] == 7
