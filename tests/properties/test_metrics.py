"""What metrics are for any confusion matrices."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from facade.analysis import metrics

sizes = st.tuples(st.integers(1, 5), st.integers(2, 5))


@st.composite
def groups(draw, full=False):
    """[G, C, C] counts; every group was tested on something, if `full` on every class."""
    count, classes = draw(sizes)
    counts = draw(arrays(np.int64, (count, classes, classes), elements=st.integers(0, 50)))
    counts[:, 0, 0] += 1
    return counts + full


@given(groups())
def test_shares_lie_between_nothing_and_everything(counts):
    accuracy = metrics.accuracy(counts)
    assert ((accuracy >= 0) & (accuracy <= 1)).all()
    assert 0 <= metrics.fair_accuracy(accuracy) <= 1
    for name, limit in {"dp": 1.0, "eo": 2.0}.items():
        value = metrics.GROUP_METRICS[name](counts)
        assert value is None or 0 <= value <= limit + 1e-12


@given(groups(full=True), st.data())
def test_the_order_of_groups_and_classes_changes_nothing(counts, data):
    order = data.draw(st.permutations(range(len(counts))))
    classes = data.draw(st.permutations(range(counts.shape[1])))
    moved = counts[order][:, classes][:, :, classes]
    for of in metrics.GROUP_METRICS.values():
        assert of(moved) == pytest.approx(of(counts))
    assert metrics.fair_accuracy(metrics.accuracy(moved)) == pytest.approx(
        metrics.fair_accuracy(metrics.accuracy(counts))
    )


@given(groups(full=True), st.integers(2, 9))
def test_groups_that_are_served_alike_are_served_fairly_whatever_their_size(counts, times):
    alike = np.stack([counts[0], times * counts[0]])
    assert all(of(alike) == pytest.approx(0) for of in metrics.GROUP_METRICS.values())


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.floats(0, 0.5))
def test_a_lower_worst_cluster_never_makes_accuracy_fairer(accuracies, less):
    before = np.array(accuracies)
    after = before.copy()
    after[before.argmin()] = max(0.0, before.min() - less)
    assert metrics.fair_accuracy(after) <= metrics.fair_accuracy(before) + 1e-12


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=12))
def test_settled_means_one_head_for_every_cluster_and_one_cluster_for_every_head(nodes):
    choice, cluster = (np.array(column) for column in zip(*nodes, strict=True))
    pairs = set(nodes)
    separated = len({head for head, _ in pairs}) == len(pairs)
    assert metrics.separated(choice, cluster) == separated
    assert metrics.settled(choice, cluster) == (separated and len({c for _, c in pairs}) == len(pairs))
