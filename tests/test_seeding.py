"""Farthest-first seeding: what nodes agree on, what it costs, and that it settles."""

import warnings

import numpy as np
import pytest
import torch

from facade import Experiment, ExperimentError, Federation, run
from facade.algorithms.seeding.farthest import AVERAGING_ROUNDS, NEVER, listen, start, without_the_few
from facade.core import tree
from facade.core.messages import EVERYONE, Deliveries, Edges
from facade.core.topology import Regular, Ring, Star, diameter
from facade.core.turn import Turn
from facade.experiment.setup import planned, set_up
from facade.testing.driven import one_turn
from seeded_runs import experiment, inbox, states


def test_while_seeds_are_sought_every_head_counts_as_heard():
    _, posts = states(experiment(), 5 + AVERAGING_ROUNDS + 2 * 5)
    assert (posts[-1].state.health.last == posts[-1].round - 1).all()


def test_all_nodes_agree_on_the_same_seeds():
    setup, posts = states(experiment(), 5 + AVERAGING_ROUNDS + 2 * 5 + 1)
    assert setup.plan.spread == 5  # log2(8) + 2
    found = posts[-1].state.seeding
    for leaf in found.seeds.values():
        assert torch.equal(leaf, leaf[:1].expand_as(leaf))
        assert not torch.equal(leaf[0, 0], leaf[0, 1])
    assert found.stage.tolist() == [2] * 8


def test_seeds_are_private_heads_of_two_clusters():
    _, posts = states(experiment(), 16 + AVERAGING_ROUNDS)
    seeding = posts[-1].state.seeding
    owners = [
        [i for i in range(8) if torch.equal(seeding.private["head.weight"][i], seeding.seeds["head.weight"][0, j])]
        for j in range(2)
    ]
    assert all(len(owner) == 1 for owner in owners)
    assert {int(owner[0] >= 6) for owner in owners} == {0, 1}


def test_cores_agree_before_heads_are_fitted():
    _, posts = states(experiment(), 5 + AVERAGING_ROUNDS)

    def spread(post):
        return sum(float(leaf.var(0).sum()) for leaf in post.state.facade.core.values())

    before, after = posts[5], posts[5 + AVERAGING_ROUNDS]
    assert spread(after) < 0.1 * spread(before)
    assert all(torch.equal(leaf[:, 0], leaf[:, 1]) for leaf in after.state.facade.heads.values()), "one head"
    for name, leaf in before.state.facade.core.items():
        assert torch.allclose(after.state.facade.core[name].mean(0), leaf.mean(0), atol=1e-6), "nobody trained"


def test_nothing_is_trained_or_averaged_while_seeds_are_sought():
    _, posts = states(experiment(), 15 + AVERAGING_ROUNDS)
    before, after = (posts[round + AVERAGING_ROUNDS].state.facade for round in (5, 15))
    assert all(torch.equal(before.core[k], after.core[k]) for k in before.core)
    assert all(torch.equal(before.heads[k], after.heads[k]) for k in before.heads)


def test_the_message_keeps_one_schema_and_seeding_adds_16_bytes():
    _, seeded = states(experiment(), 20)
    _, plain = states(experiment(seeding="none"), 20)
    sizes = {tree.row_bytes(post.outbox) for post in seeded}
    assert sizes == {tree.row_bytes(plain[0].outbox) + 16}
    shapes = {tuple((k, v.shape, v.dtype) for k, v in tree.flatten(post.outbox).items()) for post in seeded}
    assert len(shapes) == 1


def test_one_head_is_still_el_bit_for_bit():
    one = run(experiment(heads=1))
    el = run(experiment("6:2", 40, "algorithm.name=el"))
    assert one.summary["model_sha256"] == el.summary["model_sha256"]
    assert one.summary["bytes_per_node"] == el.summary["bytes_per_node"] + 40 * 4 * 8


@pytest.mark.parametrize("clusters", ["12:4", "8:8", "10:5:2"])
def test_seeded_heads_settle_on_five_seeds(clusters):
    heads = clusters.count(":") + 1
    settings = ["training.steps=10", "algorithm.warmup=10"]
    results = [run(experiment(clusters, 60, f"seed={seed}", *settings, heads=heads)) for seed in range(1, 6)]
    assert [r.summary["settled"] for r in results] == [True] * 5


def test_it_settles_with_lost_messages_and_offline_nodes():
    trouble = ["network.loss=0.1", "network.offline=0.1", "training.steps=10", "algorithm.warmup=10"]
    results = [run(experiment("16:16", 60, f"seed={seed}", *trouble)) for seed in (1, 2)]
    assert [r.summary["settled"] for r in results] == [True, True]


def test_a_head_of_several_layers_is_fitted_by_the_runs_optimiser():
    result = run(experiment("8:8", 60, "training.steps=10", "algorithm.warmup=10", split="all"))
    assert result.summary["settled"]


@pytest.mark.parametrize(
    ("fields", "rounds", "said"),
    [
        ({"warmup": 0}, 40, "set algorithm.warmup > 0"),
        ({}, 18, "takes 18 rounds (warm-up 5, averaging 3, 2 heads of 5 each), but training.rounds = 18"),
        ({"seeding": "none", "revival": True}, 40, "algorithm.revival = true needs bids"),
        ({"heads": "auto", "seeding": "none"}, 40, "heads = 'auto' needs seeding = 'class-means'"),
    ],
)
def test_what_cannot_be_seeded_is_refused(fields, rounds, said):
    with pytest.raises(ExperimentError) as refused:
        set_up(experiment("6:2", rounds, **fields))
    assert said in str(refused.value)


def test_where_all_have_few_samples_they_bid_as_ever():
    federation = Federation.from_nodes([(np.eye(4), np.arange(4) % 2, np.eye(4), np.arange(4) % 2)] * 6)
    fields = {"name": "facade", "warmup": 2, "heads": 2, "seeding": "farthest"}
    training = {"rounds": 30, "steps": 2, "batch": 4}
    setup = set_up(Experiment.of({"data": federation.section, "algorithm": fields, "training": training}), federation)
    turn = one_turn(setup, 5)
    bids = without_the_few(turn, torch.tensor([0.5, 0.1, 0.9, torch.nan, torch.inf, -torch.inf]).double())
    assert bids.isfinite().all()
    assert bids[:3].argsort().tolist() == [1, 0, 2]
    assert bids.max() < -NEVER / 2, "anybody else would win"


def test_the_best_bid_wins_and_ties_go_to_the_lower_node():
    seeding = start({"w": torch.zeros(3, 2, 1)})._replace(
        score=torch.tensor([0.5, 0.7, 0.7], dtype=torch.float64), origin=torch.tensor([0, 1, 2])
    )
    everyone = listen(seeding, inbox([0.5, 0.7, 0.7], [0, 1, 2], EVERYONE))
    assert everyone.origin.tolist() == [1, 1, 1]
    assert everyone.candidate["w"].flatten().tolist() == [1, 1, 1]
    one = Deliveries(torch.tensor([0, 1]), torch.tensor([2, 0]))
    assert listen(seeding, inbox([0.5, 0.7, 0.7], [0, 1, 2], one)).origin.tolist() == [2, 1, 2]


def test_a_rumour_needs_the_diameter_of_a_fixed_graph():
    assert diameter(Ring().draw(9, 1, 0)) == 4
    assert Ring().spread(9, 1, fresh=False) == 6
    assert Regular(4).spread(32, 1, fresh=True) == 7


@pytest.mark.parametrize("n", [3, 8, 20])
def test_on_fresh_stars_a_rumour_reaches_everyone_in_time(n):
    for seed in range(20):
        knows = np.zeros((n, n), dtype=bool) | np.eye(n, dtype=bool)
        for round in range(Star().spread(n, seed, fresh=True) - 2):
            graph, before = Star().draw(n, seed, round), knows.copy()
            for receiver, sender in zip(graph.receiver, graph.sender, strict=True):
                knows[receiver] |= before[sender]
        assert knows.all()


def test_seeded_heads_begin_without_the_momentum_of_those_before():
    described = experiment("6:2", 40, "training.momentum=0.9")
    setup, posts = states(described, 5 + AVERAGING_ROUNDS + 2 * 5)
    remembered = posts[-1].state.facade.heads_memory
    assert any(leaf.abs().max() > 0 for slot in remembered.values() for leaf in slot.values())
    shard = setup.shards()[0]
    turn = setup.plan.turn(shard, posts[-1].round)
    seeded = setup.algorithm.way._seek(turn, posts[-1].state)
    assert all(leaf.abs().max() == 0 for slot in seeded.facade.heads_memory.values() for leaf in slot.values())


def test_only_who_gossips_asks_how_far_news_travel():
    fixed = ("topology.name=ring", "topology.fresh=false")
    assert "spread" not in vars(set_up(experiment("6:2", 40, *fixed, "algorithm.name=el")).plan)
    assert vars(set_up(experiment("6:2", 40, *fixed)).plan)["spread"] == 6


@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        (("network.loss=0.1", "network.offline=0.1"), False),
        (("network.loss=0.3",), True),
        (("network.loss=0.2", "network.offline=0.1"), True),
        (("topology.fresh=false",), False),
        (("topology.fresh=false", "network.offline=0.01"), True),
    ],
)
def test_where_nodes_may_miss_what_the_others_agreed_on_that_is_said(settings, warned):
    for way, expected in (("farthest", warned), ("none", False)):
        described = experiment("30:2", 200, *settings, seeding=way)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            planned(described)
        assert [("start from other ones" in str(warning.message)) for warning in said] == [True] * expected


def test_the_turn_of_some_nodes_has_their_edges_alone():
    setup = set_up(experiment("6:2"))
    [shard] = setup.shards()
    graph = setup.plan.graph(0)
    edges = Edges(torch.from_numpy(graph.receiver), torch.from_numpy(graph.sender))
    some = Turn(shard, 0, edges, torch.full((8,), 4), setup.plan).only(torch.tensor([2, 5]))
    assert some.shard.nodes.tolist() == [2, 5]
    for row, node in enumerate((2, 5)):
        heard = some.edges.sender[some.edges.receiver == row]
        assert heard.tolist() == graph.sender[graph.receiver == node].tolist()
