"""How nodes find out which of them look alike, and whether heads of groups are worth it."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from facade import Experiment, ExperimentError, Federation, run
from facade.algorithms.seeding import class_means, survey
from facade.algorithms.seeding.class_means import Seen, class_sums, preference, strangeness
from facade.algorithms.seeding.survey import Calendar
from facade.core import tree
from facade.core.network import Network
from facade.data.samples import Holdings, Labelled
from facade.experiment.setup import set_up
from facade.learning import models
from facade.testing.driven import driven, prepared
from seeded_runs import experiment, states


def surveyed(clusters="9:3", rounds=60, *settings, **algorithm):
    fields = {"seeding": "class-means", "warmup": 0} | algorithm
    return experiment(clusters, rounds, "training.steps=10", *settings, **fields)


def seen(z, y):
    return Seen(z, y, torch.ones(z.shape[1], dtype=torch.float64))


def drawn(counts, shift=0.0, seed=1):
    """So many rows of each class, of values that differ from class to class and by a shift."""
    draw = torch.Generator().manual_seed(seed)
    y = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    noise = torch.randn(len(y), 6, generator=draw, dtype=torch.float64)
    return seen(4 * y.unsqueeze(1) + noise + shift, y)


def sums(of, classes=3):
    return class_sums(of, classes, classes * 7)


@pytest.mark.parametrize("counts", [[30, 5, 1], [1, 5, 30], [0, 20, 0]])
def test_samples_prefer_those_that_look_alike_however_frequent_their_classes_are(counts):
    one, other = sums(drawn([10, 10, 10], seed=2)), sums(drawn([10, 10, 10], shift=1.0, seed=3))
    for shift, sign in ((0.0, 1), (1.0, -1)):
        total, errors = preference(drawn(counts, shift), one, other, 3)
        assert sign * total > 0
        assert sign * errors > 2


def test_a_group_known_by_few_rows_is_no_farther_for_that():
    many = sums(drawn([2000] * 3, seed=1000))
    errors = [
        float(preference(drawn([20, 20, 20], seed=seed), many, sums(drawn([2, 2, 2], seed=100 + seed)), 3)[1])
        for seed in range(60)
    ]
    assert abs(np.mean(errors)) < 0.5


def test_classes_that_nobody_shares_say_nothing():
    none = preference(drawn([0, 0, 20]), sums(drawn([9, 9, 0])), sums(drawn([9, 9, 9], shift=3.0)), 3)
    assert [float(value) for value in none] == [0, 0]
    assert float(strangeness(drawn([0, 0, 20]), sums(drawn([9, 9, 0])), 3)) == 0


@pytest.mark.parametrize("counts", [[20, 20, 20], [50, 4, 1]])
def test_a_node_looks_strange_only_where_all_its_samples_do(counts):
    group = sums(drawn([400, 400, 400], seed=9))
    usual = [float(strangeness(drawn(counts, seed=seed), group, 3)) for seed in range(40)]
    assert abs(np.mean(usual)) < 0.5
    assert np.std(usual) < 1.5
    assert float(strangeness(drawn(counts, shift=1.0), group, 3)) > 4


def test_at_most_so_many_rows_of_a_node_are_looked_at_and_none_twice():
    labelled = Labelled(torch.zeros(60, 2), torch.zeros(60, dtype=torch.int64))
    held = Holdings(labelled, np.array([3, 7]), [np.arange(50), np.arange(50, 60)])
    few = held.at_most(20, seed=1, purpose="look")
    assert [len(set(rows)) for rows in few.rows] == [20, 10]
    assert few.rows[0].tolist() == held.only(np.array([3])).at_most(20, 1, "look").rows[0].tolist()


def test_values_that_have_no_room_are_folded_alike_at_all_nodes():
    z = torch.randn(5, 40, dtype=torch.float64)
    folded = class_means._folded(z, 12, seed=1)
    assert folded.shape == (5, 12)
    assert torch.equal(folded[2:], class_means._folded(z[2:], 12, seed=1))
    assert folded.square().sum().item() == pytest.approx(z.square().sum().item() / 40, rel=0.5)


def test_the_message_keeps_one_schema_and_has_64_bytes_more_than_els():
    _, posts = states(surveyed(), 40)
    _, el = states(surveyed().with_("algorithm.name=el"), 5)
    assert {tree.row_bytes(post.outbox) for post in posts} == {tree.row_bytes(el[0].outbox) + 64}
    shapes = {tuple((k, v.shape, v.dtype) for k, v in tree.flatten(post.outbox).items()) for post in posts}
    assert len(shapes) == 1


def test_training_goes_on_in_every_round_of_the_survey():
    _, posts = states(surveyed(), 30)
    cores = [post.state.facade.core["core.1.weight"] for post in posts]
    assert all((after - before).abs().max() > 1e-4 for before, after in itertools.pairwise(cores))


def test_the_calendar_follows_from_the_spread_alone():
    calendar = Calendar(7)
    assert calendar.ready(1) == 28
    assert [calendar.events(round) for round in (0, 6, 7, 14, 21, 24, 28)] == [1, 1, 2, 3, 4, 5, 6]
    assert [round for round in range(40) if calendar.seeks(round)] == [*range(7, 14), *range(28, 35)]


EQUAL = [("9:3", 2), ("6:6", 2), ("14:2", 2), ("8:4:2", 3), ("12", 1)]


@pytest.mark.parametrize(
    ("clusters", "found", "labels"),
    [*((*case, "equal") for case in EQUAL), *((*case, "different") for case in EQUAL if case[1] < 3)],
)
def test_as_many_heads_are_found_as_there_are_clusters(clusters, found, labels):
    skewed = ("data.partition=dirichlet", "data.alpha=0.5") if labels == "different" else ()
    result = run(surveyed(clusters, 110, *skewed, heads="auto"))
    assert result.summary["settled"] is (True if found > 1 else None)
    assert len(set(result.summary["choice"])) == found
    last = [row for row in result.rows if row["kind"] == "round"][-1]
    assert last["heads_found"] == found
    assert last["heads_worth"] > 0.1 if found > 1 else last["heads_worth"] is not None
    assert result.summary["dead_heads"] == {}


def test_surplus_heads_are_left_unused():
    result = run(surveyed("9:3", 110, heads=5))
    assert result.summary["settled"]


def test_a_minority_of_one_finds_its_head():
    result = run(surveyed("3:1", 40, "topology.degree=2"))
    assert result.summary["settled"]


def test_one_strange_node_takes_no_head_from_a_group():
    """The strangest node of twelve is the only one of its kind; the second head is for the three of the other."""
    result = run(surveyed("8:3:1", 110, heads=2))
    choice = result.summary["choice"]
    assert len(set(choice[:8])) == len(set(choice[8:11])) == 1
    assert choice[0] != choice[8]


@pytest.mark.parametrize("skew", ["brightness", "contrast"])
def test_heads_that_are_not_worth_it_are_given_up(skew):
    differing = surveyed("9:3", 60, f"data.skew={skew}")
    result = run(differing)
    rounds = [row for row in result.rows if row["kind"] == "round" and row["node"] == 0]
    found = [row["heads_found"] for row in rounds]
    assert sorted(set(found)) == [0, 1, 2], "looked for, found, and given up"
    assert found[-1] == 1
    assert rounds[-1]["heads_worth"] < 0.1
    assert set(result.summary["choice"]) == {0}
    el = run(differing.with_("algorithm.name=el")).summary
    assert result.summary["clusters"] == pytest.approx(el["clusters"], abs=0.02)


def test_one_head_is_still_el_bit_for_bit():
    one, el = run(surveyed(heads=1)), run(surveyed().with_("algorithm.name=el"))
    assert one.summary["model_sha256"] == el.summary["model_sha256"]


def test_a_warm_up_longer_than_the_survey_goes_on_after_it():
    _, posts = states(surveyed(warmup=35), 36)
    over = [int(post.state.seeding.over[0]) for post in posts]
    heads = [post.state.facade.heads["head.weight"] for post in posts]
    assert over[-1] == 24
    assert all(torch.equal(leaf[:, 0], leaf[:, 1]) for leaf in heads[:36]), "one head in all places"
    assert set(posts[35].state.facade.choice.tolist()) == {0}
    assert set(posts[36].state.facade.choice.tolist()) == {0, 1}


def test_it_settles_with_lost_messages_and_offline_nodes():
    trouble = ("network.loss=0.1", "network.offline=0.1")
    results = [run(surveyed("16:16", 80, f"seed={seed}", *trouble)) for seed in (1, 2)]
    assert [result.summary["settled"] for result in results] == [True, True]


def test_nodes_that_missed_the_survey_choose_among_the_heads_they_hear_of(monkeypatch):
    described = surveyed("6:6", 70, "network.offline=1e-9")
    setup, away = prepared(described), np.array([0, 11])
    missed = range(setup.plan.spread * 4 + 1)
    monkeypatch.setattr(Network, "online", lambda self, seed, at, nodes: ~(np.isin(nodes, away) & (at in missed)))
    state = driven(setup).state
    assert state.seeding.head[away].tolist() == [-1, -1], "they know of no groups"
    choice = state.facade.choice.tolist()
    assert len(set(choice[:6])) == len(set(choice[6:])) == 1
    assert choice[0] != choice[11]


@pytest.mark.parametrize("topology", ["complete", "ring", "star"])
def test_other_graphs_survey_as_well(topology):
    settings = (f"topology.name={topology}", "topology.fresh=false")
    assert run(surveyed("6:2", 80, *settings)).summary["settled"]


def test_a_whole_model_as_head_settles():
    assert run(surveyed("8:8", 60, split="all")).summary["settled"]


def test_a_model_that_cannot_be_split_is_seen_by_its_outputs(recwarn):
    result = run(surveyed("8:4", 60, "model.name=test_linear_heads:Uncut"))
    assert "cannot be split before its head" in str(recwarn.pop(UserWarning).message)
    assert result.summary["settled"]


def test_parts_of_a_head_that_stay_at_home_carry_nothing():
    assert run(surveyed("8:4", 60, 'model.local=["head.bias"]')).summary["settled"]


@pytest.mark.filterwarnings("ignore:training.batch = 4 is more than")
@pytest.mark.parametrize("topology", ["complete", "ring"])
def test_a_node_with_one_sample_founds_no_group(topology):
    random = np.random.default_rng(0)

    def node(rows):
        x, tests = random.normal(size=(rows, 5)), random.normal(size=(6, 5))
        return x, (x[:, 0] > 0).astype(int), tests, (tests[:, 0] > 0).astype(int)

    federation = Federation.from_nodes([node(rows) for rows in (30, 30, 1, 30)])
    written = {
        "data": federation.section,
        "model": {"name": "mlp"},
        "algorithm": {"name": "facade", "warmup": 2, "heads": "auto", "max_heads": 2},
        "topology": {"name": topology},
        "training": {"rounds": 30, "steps": 2, "batch": 4},
        "evaluation": {"every": 30},
    }
    result = run(Experiment.of(written), federation=federation)
    assert len(set(result.summary["choice"])) == 1


@pytest.mark.parametrize(
    ("fields", "settings", "said"),
    [
        ({}, ("training.rounds=24",), "takes 24 rounds on this graph, but training.rounds = 24"),
        ({"revival": True}, (), "algorithm.revival = true needs bids"),
        ({"heads": "auto", "max_heads": 1}, (), "max_heads >= 2"),
    ],
)
def test_what_cannot_be_surveyed_is_refused(fields, settings, said):
    with pytest.raises(ExperimentError) as refused:
        set_up(surveyed("9:3", 60, *settings, **fields))
    assert said in str(refused.value)


class Narrow(nn.Module):
    """Its head has one number for each class."""

    def __init__(self, shape, classes):
        super().__init__()
        self.core, self.head = models.softmax(shape, 1), nn.Linear(1, classes, bias=False)

    def forward(self, x):
        return self.head(self.core(x))


def test_a_head_too_small_for_class_sums_is_refused():
    with pytest.raises(ExperimentError, match="that has 10 for 10 classes"):
        run(surveyed("9:3", 60, "model.name=test_survey:Narrow"))


@pytest.mark.filterwarnings("ignore:.*members who lie alike")
@pytest.mark.parametrize(("left", "found"), [(survey.LEFT, [1, 1]), (-1e9, [0, 0])])
def test_a_group_that_others_say_too_little_of_keeps_its_nodes(left, found, monkeypatch):
    monkeypatch.setattr(survey, "LEFT", left)
    lying = ("attack.kind=false-sums", "attack.nodes=[3, 11]", "guard.rule=fair", "training.steps=2", "seed=1")
    choice = run(surveyed("22:2", 30, *lying)).summary["choice"]
    assert choice[-2:] == found
    assert set(choice[:-2]) == {0}


def test_what_a_bid_must_not_say_is_refused():
    setup, posts = states(surveyed(), 10)
    turn = setup.plan.turn(setup.shards()[0], 10)
    message = tree.rows(posts[-1].outbox, slice(0, 1))
    assert setup.algorithm.refuse(turn, message) is None
    for name, value, said in (("origin", 12, "by node 12"), ("origin", -3, "by node -3"), ("parent", 9, "in group 9")):
        bid = message["bid"] | {name: torch.tensor([value])}
        assert said in setup.algorithm.refuse(turn, message | {"bid": bid})


def test_the_thresholds_are_those_of_the_documentation():
    text = (Path(__file__).parents[1] / "docs" / "seeding.md").read_text()
    for constant in (survey.SURE, survey.CLEAR):
        assert f"{constant:g} standard error" in text
