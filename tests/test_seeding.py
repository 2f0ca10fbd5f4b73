"""Farthest-first seeding: what nodes agree on, what it costs, and that it settles."""

import io
import warnings

import numpy as np
import pytest
import torch
from rich.console import Console

from experiments import digits
from facade import Experiment, ExperimentError, Federation, run
from facade.algorithms import seeded_facade
from facade.algorithms.seeding import farthest, health, linear_heads, revival
from facade.algorithms.seeding.farthest import AVERAGING_ROUNDS, NEVER, Calendar, listen, start, without_the_few
from facade.cli import display
from facade.cli.progress import RunProgress
from facade.core import tree
from facade.core.engine import RoundLoop, drive, play
from facade.core.messages import EVERYONE, Deliveries, Edges, Inbox
from facade.core.plan import Network
from facade.core.topology import Regular, Ring, Star, diameter
from facade.core.turn import Turn
from facade.experiment.setup import planned, set_up
from facade.learning.learner import Features
from facade.runs.result import health_of_heads
from facade.runtimes.local import among_all
from facade.testing.contract import tiny
from facade.testing.driven import driven, one_turn, prepared


def experiment(clusters="6:2", rounds=40, *settings, **algorithm):
    fields = {"heads": 2, "warmup": 5, "seeding": "farthest"} | algorithm
    return digits(*settings, clusters=clusters, rounds=rounds, steps=5, every=rounds, **fields)


def states(described, upto):
    """States at the start of rounds 0..upto."""
    setup = set_up(described)
    [shard] = setup.shards()
    loop, kept = RoundLoop(play(setup.algorithm, shard, setup.plan, setup.federation)), []
    while True:
        kept.append(loop.post)
        if loop.post.round == upto:
            return setup, kept
        loop.advance(among_all(shard)(loop.post))


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


@pytest.mark.parametrize(("clusters", "needed"), [("14:2", 2), ("8:8", 2), ("10:5:2", 3), ("16", 1)])
def test_as_many_heads_are_found_as_there_are_clusters(clusters, needed):
    result = run(experiment(clusters, 70, "training.steps=10", "algorithm.warmup=10", heads="auto"))
    assert result.summary["settled"] is (True if needed > 1 else None)
    assert len(set(result.summary["choice"])) == needed
    assert result.summary["dead_heads"] == {}, "a head that was never needed is not dead"
    last = [row for row in result.rows if row["kind"] == "round"][-1]
    assert [loss is not None for loss in last["head_losses"]] == [j < needed for j in range(6)]


def test_a_node_away_while_seeds_were_sought_learns_of_heads_by_hearing_them(monkeypatch):
    described = experiment("6:4", 70, "network.offline=1e-9", "training.steps=10", heads="auto", max_heads=2, warmup=10)
    setup, away = prepared(described), np.array([0, 9])
    sought = range(10, 13 + 2 * setup.plan.spread)
    monkeypatch.setattr(Network, "online", lambda self, seed, at, nodes: ~(np.isin(nodes, away) & (at in sought)))
    state = driven(setup).state
    assert not state.seeding.found[away].any(), "they missed it all"
    choice = state.facade.choice.tolist()
    assert len(set(choice[:6])) == len(set(choice[6:])) == 1
    assert choice[0] != choice[9]


@pytest.mark.parametrize(("n", "errors"), [(32, 2.96), (100, 3.29), (1000, 3.89)])
def test_a_head_is_needed_from_so_many_standard_errors_on(n, errors):
    assert farthest.needed(n) == pytest.approx(errors, abs=0.005)


def test_seeds_are_found_though_nodes_and_messages_are_missing():
    trouble = ["network.loss=0.1", "network.offline=0.1", "training.steps=10", "algorithm.warmup=10"]
    result = run(experiment("16:16", 70, *trouble, heads="auto", max_heads=3))
    assert result.summary["settled"]
    assert len(set(result.summary["choice"])) == 2


@pytest.mark.parametrize(
    ("fields", "rounds", "said"),
    [
        ({"warmup": 0}, 40, "set algorithm.warmup > 0"),
        ({}, 18, "takes 18 rounds (warm-up 5, averaging 3, 2 heads of 5 each), but training.rounds = 18"),
        ({"seeding": "none", "revival": True}, 40, "algorithm.revival = true needs bids"),
        ({"heads": "auto", "seeding": "none"}, 40, "heads = 'auto' needs seeding = 'farthest'"),
        ({"heads": "auto"}, 38, "takes 38 rounds (warm-up 5, averaging 3, 6 heads of 5 each)"),
    ],
)
def test_what_cannot_be_seeded_is_refused(fields, rounds, said):
    with pytest.raises(ExperimentError) as refused:
        set_up(experiment("6:2", rounds, **fields))
    assert said in str(refused.value)


def test_heads_of_several_layers_are_not_counted():
    with pytest.raises(ExperimentError, match="heads of one linear layer"):
        run(experiment(heads="auto", max_heads=3, split="all"))


def test_where_all_have_few_samples_they_bid_as_ever():
    federation = Federation.from_nodes([(np.eye(4), np.arange(4) % 2, np.eye(4), np.arange(4) % 2)] * 6)
    fields = {"name": "facade", "warmup": 2, "heads": 2}
    training = {"rounds": 30, "steps": 2, "batch": 4}
    setup = set_up(Experiment.of({"data": federation.section, "algorithm": fields, "training": training}), federation)
    turn = one_turn(setup, 5)
    bids = without_the_few(turn, torch.tensor([0.5, 0.1, 0.9, torch.nan, torch.inf, -torch.inf]).double())
    assert bids.isfinite().all()
    assert bids[:3].argsort().tolist() == [1, 0, 2]
    assert bids.max() < -NEVER / 2, "anybody else would win"


@pytest.mark.parametrize("topology", ["complete", "ring"])
def test_a_node_with_one_sample_gives_no_seed(topology):
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
        "training": {"rounds": 20, "steps": 2, "batch": 4},
        "evaluation": {"every": 20},
    }
    result = run(Experiment.of(written), federation=federation)
    assert len(set(result.summary["choice"])) == 1, "nobody needs a second head"


def inbox(scores, origins, deliveries):
    nodes = len(scores)
    pool = {
        "head": {"w": torch.arange(nodes).float().unsqueeze(1)},
        "bid": {"score": torch.tensor(scores, dtype=torch.float64), "origin": torch.tensor(origins)},
    }
    return Inbox(pool, torch.arange(nodes), torch.arange(nodes), deliveries)


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
    seeded = setup.algorithm._seek(turn, posts[-1].state)
    assert all(leaf.abs().max() == 0 for slot in seeded.facade.heads_memory.values() for leaf in slot.values())


@pytest.mark.parametrize("order", ["in turn", "shuffled"])
def test_the_order_of_a_nodes_samples_does_not_decide_what_it_bids(order):
    draw = torch.Generator().manual_seed(1)
    y = torch.arange(200) % 10
    z = torch.nn.functional.one_hot(y, 10) + 0.3 * torch.randn(200, 10, generator=draw)
    if order == "shuffled":
        place = torch.randperm(200, generator=draw)
        z, y = z[place], y[place]
    head = {"head.weight": torch.zeros(10, 10), "head.bias": torch.zeros(10)}
    bid = linear_heads.excess(Features(z, y, None), head, tree.map(lambda leaf: leaf.unsqueeze(0), head), 100)
    assert bid > 10, "the common head knows nothing, one's own nearly everything"


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


def test_revival_on_a_graph_on_which_news_travel_too_slowly_is_refused():
    slow = experiment("90:6", 300, "topology.name=ring", "topology.fresh=false", revival=True)
    with pytest.raises(ExperimentError, match="gossips for 50 rounds on this graph, and every 50 rounds anew"):
        set_up(slow)


def test_health_tells_when_a_head_was_last_heard_of():
    known = health.unheard(1, 2)
    for round in range(60):
        known = health.heard(known, torch.tensor([[3, 2 if round < 5 else 0]]), round)
    assert known.last.tolist() == [[59, 4]]
    assert health.dead(known, 59).tolist() == [[False, True]]
    assert known.share[0, 0] > 0.65 > 0.02 > known.share[0, 1]


def killed(revival):
    """A run in which both clusters share head 0 and head 1 has died, continued for 80 rounds."""
    described = experiment("8:8", 120, "training.steps=10", revival=revival)
    setup, posts = states(described, 18 + AVERAGING_ROUNDS)  # after warm-up 5, calm, and two seeds of 6 rounds
    state = posts[-1].state
    together = tree.map(lambda leaf: leaf.mean((0, 1), keepdim=True).expand_as(leaf).clone(), state.facade.heads)
    noise = torch.Generator().manual_seed(1)
    useless = {
        name: torch.stack([v[:, 0], 50 * torch.randn(v[0, 0].shape, generator=noise).expand_as(v[:, 1])], 1)
        for name, v in together.items()
    }
    facade = state.facade._replace(heads=useless, choice=torch.zeros_like(state.facade.choice))
    state = state._replace(facade=facade)
    shards = setup.shards()
    rounds = play(setup.algorithm, shards[0], setup.plan, setup.federation, (18 + AVERAGING_ROUNDS, state))
    return drive(rounds, among_all(shards[0])).state.facade.choice.tolist()


def test_a_dead_head_is_revived_by_the_worst_served_cluster():
    choice = killed(revival=True)
    assert set(choice[:8]) != set(choice[8:])
    assert len(set(choice[:8])) == len(set(choice[8:])) == 1


def test_only_the_worst_served_node_revives_the_first_dead_head_without_its_momentum(monkeypatch):
    for module in (seeded_facade, health, revival):
        monkeypatch.setattr(module, "MEMORY", 8)
    dead = lambda known, _: (torch.arange(4) > 1).expand(known.last.shape).clone()  # noqa: E731
    monkeypatch.setattr(seeded_facade, "dead", dead)
    settings = ("algorithm.revival=true", "algorithm.heads=4", "training.momentum=0.9", "training.lr=0.01")
    setup = prepared(
        tiny("facade", "algorithm.seeding=farthest", *settings, "training.rounds=60", "evaluation.every=60")
    )
    closes = Calendar(1, 4).ready(setup.plan.spread) + 8 + setup.plan.spread
    state = driven(setup).states()[closes]
    winner = int(state.seeding.origin[0])
    assert set(state.seeding.origin.tolist()) == {winner}
    remembering = state.facade._replace(heads_memory=tree.map(torch.ones_like, state.facade.heads_memory))
    full = state._replace(facade=remembering)
    revived = setup.algorithm._revive(one_turn(setup, closes), full)
    for name, leaf in revived.facade.heads.items():
        changed = (leaf != state.facade.heads[name]).flatten(2).any(2)
        assert changed.nonzero().tolist() == [[winner, 2]]
        assert torch.equal(leaf[winner, 2], state.seeding.private[name][winner])
    for leaf in tree.flatten(revived.facade.heads_memory).values():
        assert (leaf[winner, 2] == 0).all()
        assert int((leaf == 0).flatten(2).all(2).sum()) == 1
    heads = revived.facade.heads
    later = setup.algorithm._revive(one_turn(setup, closes + 1), revived)
    assert all(torch.equal(leaf, heads[name]) for name, leaf in later.facade.heads.items()), "a window closes once"
    late = setup.algorithm._revive(one_turn(setup, closes + 1), full)  # the winner was offline when it closed
    assert all(torch.equal(leaf, heads[name]) for name, leaf in late.facade.heads.items())
    missed = full._replace(seeding=full.seeding._replace(stage=full.seeding.stage - 1))  # offline in all of the window
    stale = setup.algorithm._revive(one_turn(setup, closes), missed)
    assert all(torch.equal(leaf, state.facade.heads[name]) for name, leaf in stale.facade.heads.items())


def test_without_revival_a_dead_head_stays_dead():
    choice = killed(revival=False)
    assert set(choice) == {0}


def at_an_opening_window(setup, dead):
    """Turn, seeding before, and seeding after nodes that hold a head dead (dead [S, 2]) made their bids."""
    [shard] = setup.shards()
    calendar = Calendar(5, 2)
    turn = Turn(
        shard,
        calendar.ready(setup.plan.spread) + health.MEMORY,
        EVERYONE,
        torch.full((4,), 3),
        lambda: setup.plan.spread,
    )
    state = setup.algorithm.init(shard)
    before = state.seeding._replace(own=torch.full((4,), 0.5, dtype=torch.float64))  # as fitted to an older core
    facade = state.facade
    model = revival.ModelParts(facade.core, facade.heads, tree.map(lambda leaf: leaf[:, 0], facade.heads))
    opened, revived = revival.revive(turn, before, model, torch.tensor(dead), calendar)
    assert not revived.any(), "that comes when the window closes"
    return turn, before, opened


def test_nodes_that_hold_no_head_dead_pass_on_even_the_bids_of_those_well_served():
    setup = set_up(experiment("3:1", 200, "topology.name=complete", revival=True))
    turn, _, opened = at_an_opening_window(setup, [[False, False], [False, True], [False, True], [False, False]])
    assert opened.origin.tolist() == [-1, 1, 2, -1]
    well = torch.tensor([0, -0.2, -0.1, 0], dtype=torch.float64)
    served = opened._replace(score=torch.where(opened.origin >= 0, well, opened.score))
    for deliveries in (EVERYONE, Deliveries(torch.tensor([0, 1, 3]), torch.tensor([2, 2, 2]))):
        heard = inbox(served.score.tolist(), served.origin.tolist(), deliveries)
        told = revival.listen(turn, served, heard, Calendar(5, 2))
        assert told.origin.tolist() == [2, 2, 2, 2]


def test_who_bids_for_a_dead_head_fits_a_private_one_anew():
    setup = set_up(experiment("3:1", 200, "topology.name=complete", revival=True))
    turn, before, opened = at_an_opening_window(setup, [[False, False], [False, True], [False, True], [False, False]])
    changed = (opened.private["head.weight"] != before.private["head.weight"]).flatten(1).any(1)
    assert changed.tolist() == [False, True, True, False]
    assert opened.own[[0, 3]].tolist() == [0.5, 0.5]
    private = tree.map(lambda leaf: leaf.unsqueeze(1), opened.private)
    core = setup.algorithm.init(turn.shard).facade.core
    fitted = turn.learner.score(core, private, turn.all_samples())[:, 0].double()
    assert torch.equal(opened.own[1:3], fitted[1:3])


def test_a_node_with_next_to_no_samples_does_not_revive_a_head():
    random = np.random.default_rng(0)
    x, y = random.normal(size=(30, 5)), random.integers(2, size=30)
    of = [slice(0, 30), slice(0, 30), slice(0, 2), slice(0, 30)]
    federation = Federation.from_nodes([(x[rows], y[rows], x, y) for rows in of])
    algorithm = {"name": "facade", "warmup": 5, "heads": 2, "seeding": "farthest", "revival": True}
    written = {"data": federation.section, "model": {"name": "mlp"}, "algorithm": algorithm}
    written |= {"topology": {"name": "complete"}, "training": {"rounds": 200, "batch": 2}}
    _, _, opened = at_an_opening_window(set_up(Experiment.of(written), federation), [[False, True]] * 4)
    assert opened.score.isfinite().all()
    assert int(opened.score.argmin()) == 2
    assert opened.score[2] < -NEVER < opened.score[[0, 1, 3]].min()


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


def note(round, last, losses):
    return [
        {"round": round, "head_last_heard": heard, "head_losses": each}
        for heard, each in zip(last, losses, strict=True)
    ]


def test_a_result_says_which_heads_are_dead_since_when():
    # Node 0 heard of head 2 in the 31st round, nobody after it; of head 1, node 1 hears still.
    found = health_of_heads(note(100, [[99, 10, 30], [99, 99, 5]], [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]]))
    assert found == {"dead_heads": {"2": 32}, "alike_heads": []}
    assert display.health(found) == "Head 2 is dead since round 32."


def test_heads_that_score_alike_are_named_and_heads_that_never_were_are_not():
    found = health_of_heads(note(60, [[59, 59, 1], [59, 59, 1]], [[1.0, 1.005, None], [2.0, 1.99, None]]))
    assert found == {"dead_heads": {}, "alike_heads": [[0, 1]]}
    assert display.health(found) == "Heads 0 and 1 score alike."
    assert display.health(health_of_heads(note(9, [[8, 8]], [[1.0, 2.0]]))) is None


def test_a_run_without_heads_says_nothing_of_them():
    assert health_of_heads([{"round": 3, "bytes": 1}]) == {}


def test_a_run_whose_clusters_share_a_head_says_that_the_other_is_dead():
    # All nodes are alike: plain FACADE leaves one of two heads to nobody sooner or later.
    said = io.StringIO()
    with RunProgress(Console(file=said, width=80), [8]) as progress:
        result = run(experiment("8", 120, "evaluation.every=20", heads=2, seeding="none"), progress=progress)
    users = set(result.summary["choice"])
    dead = {int(j) for j in result.summary["dead_heads"]}
    assert len(users) == 1
    assert dead == {0, 1} - users
    assert said.getvalue().count("is dead since round") == 1, "told when it is seen, not at every evaluation"
    heard = [row["head_last_heard"] for row in result.rows if row["kind"] == "round" and row["round"] == 120]
    assert dead == {j for j in (0, 1) if 120 - 1 - max(last[j] for last in heard) >= health.MEMORY}
