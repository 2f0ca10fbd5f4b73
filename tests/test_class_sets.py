"""Nodes that have no class in common: when classes tell groups apart, and who is in which."""

import pytest
import torch

from facade import run
from facade.algorithms.seeding import class_sets
from facade.algorithms.seeding.class_means import MOST_ROWS
from facade.core import tree
from facade.core.messages import EVERYONE, Deliveries, Inbox
from facade.runs.survey_facts import survey_in_words
from seeded_runs import experiment, states

TWO = ("data.skew=labels", "data.groups=[[0,1,2,3,4,5],[6,7,8,9]]")
THREE = ("data.skew=labels", "data.groups=[[0,1,2,3],[4,5,6],[7,8,9]]")


def surveyed(clusters, *settings, rounds=60, **algorithm):
    fields = {"seeding": "class-means", "warmup": 0} | algorithm
    return experiment(clusters, rounds, "training.steps=10", *settings, **fields)


def having(*nodes):
    """[M, 8] class sums of nodes with 10 rows in each of these classes of 4; the rest is no count."""
    sums = torch.zeros(len(nodes), 8)
    for node, classes in enumerate(nodes):
        sums[node, list(classes)] = 10 / MOST_ROWS
    sums[:, 4:] = 0.3
    return sums


def heard(sums, deliveries=EVERYONE):
    every = torch.arange(len(sums))
    return class_sets.overlaps(Inbox({}, every, every, deliveries), sums, 4).tolist()


def test_nodes_compare_their_classes_with_those_of_all_they_hear():
    sums = having({0, 1, 2}, {0, 1}, {2, 3}, {3})
    assert heard(sums) == [
        pytest.approx([1 / 3, 2 / 3, 2 / 9, 0]),  # one class in common is no share
        pytest.approx([2 / 3, 1 / 3, 2 / 9, 0]),
        pytest.approx([1 / 3, 2 / 3, 0, 0]),
        pytest.approx([2 / 3, 1 / 3, 0, 0]),
    ]
    some = Deliveries(torch.tensor([0, 0, 2]), torch.tensor([1, 3, 3]))
    assert heard(sums, some)[0] == pytest.approx([1 / 2, 1 / 2, 1 / 3, 0])
    assert heard(sums, some)[1] == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("disjoint", "alike", "told"),
    [
        (0.0, 1.0, False),  # all have the same classes
        (0.4, 1.0, True),
        (0.4, 0.6, True),  # not quite the same, but much
        (0.4, 0.5, False),  # as where chance divided them
        (2 / 32, 1.0, True),  # one node of 32
        (0.5 / 32, 1.0, False),  # fewer pairs than one node makes
    ],
)
def test_classes_tell_apart_only_nodes_with_much_the_same_or_none_in_common(disjoint, alike, told):
    averages = torch.tensor([[disjoint, 1 - disjoint, alike * (1 - disjoint), 0]], dtype=torch.float64)
    assert class_sets.may_tell_apart(averages, 32).tolist() == [told]


def test_who_lacks_the_classes_of_half_its_group_bids_before_all_who_look_strange():
    [group] = 10 * having({0, 1}) + 6 * having({2, 3})
    few, many = having({2, 3}, {0, 1})
    scores = torch.tensor([2.0 + class_sets.bid(own, group, 4) for own in (few, many)])
    assert class_sets.decide(scores).tolist() == [True, False]
    assert scores[0] > MOST_ROWS**0.5 > scores[1]


def test_a_node_is_nearer_to_the_half_that_has_its_classes():
    [own], [mine], [others] = having({0, 1}), 5 * having({0, 1}), 9 * having({2, 3})
    assert class_sets.shared(own, mine, 4)
    assert not class_sets.shared(own, others, 4)
    assert float(class_sets.nearer(own, mine, others, 4)) == pytest.approx(1)
    assert float(class_sets.nearer(own, others, mine, 4)) == pytest.approx(-1)
    [both] = having({1, 2})
    assert float(class_sets.nearer(both, mine, others, 4)) == pytest.approx(0)
    assert float(class_sets.nearer(own, mine, others - 0.01 * mine, 4)) == pytest.approx(1), "averages may fall below 0"
    assert float(class_sets.nearer(own, 0 * mine, 0 * others, 4)) == 0


@pytest.mark.parametrize(
    ("clusters", "settings", "heads"),
    [
        ("9:3", TWO, 2),
        ("14:2", TWO, "auto"),
        ("11:1", TWO, 2),
        ("6:4:2", THREE, 3),
        ("6:4:2", THREE, "auto"),
        ("9:3", (*TWO, "data.partition=dirichlet", "data.alpha=0.7"), 2),
    ],
)
def test_nodes_that_share_no_classes_get_heads_of_their_own(clusters, settings, heads):
    result = run(surveyed(clusters, *settings, heads=heads, rounds=80))
    assert result.summary["settled"]
    last = [row for row in result.rows if row["kind"] == "round"][-1]
    assert last["heads_found"] == len(clusters.split(":"))
    assert "by their classes: each has a head of its own" in survey_in_words(result.summary["survey"])


def test_they_do_so_with_lost_messages_and_offline_nodes():
    trouble = ("network.loss=0.1", "network.offline=0.1")
    results = [run(surveyed("13:3", *TWO, f"seed={seed}", *trouble)) for seed in (1, 2)]
    assert [result.summary["settled"] for result in results] == [True, True]


def test_heads_of_nodes_with_other_classes_are_not_on_trial():
    _, posts = states(surveyed("9:3", *TWO, rounds=50), 45)
    after = posts[-1].state
    assert after.seeding.by_classes.all()
    assert after.tried.tolist() == [2] * 12, "the trial would be over"
    assert (after.seeding.shares > 0).sum(1).tolist() == [2] * 12


@pytest.mark.filterwarnings("ignore:training.batch = 8 is more than")
@pytest.mark.parametrize("alpha", [0.1, 0.3])
def test_classes_that_chance_divided_decide_nothing(alpha):
    _, posts = states(surveyed("12:4", "data.partition=dirichlet", f"data.alpha={alpha}"), 8)
    assert not posts[-1].state.seeding.apart.any()


def test_nodes_of_one_class_each_are_not_told_apart_by_it():
    _, posts = states(surveyed("12:4", "data.partition=shards", "data.shards_per_node=1"), 8)
    assert not posts[-1].state.seeding.apart.any()


def test_the_message_is_no_longer_for_it():
    _, posts = states(surveyed("9:3", *TWO), 30)
    _, el = states(surveyed("9:3", *TWO).with_("algorithm.name=el"), 1)
    assert {tree.row_bytes(post.outbox) for post in posts} == {tree.row_bytes(el[0].outbox) + 64}
