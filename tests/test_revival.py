"""Who uses which head, and how heads that nobody uses start anew."""

import io

import numpy as np
import pytest
import torch
from rich.console import Console

from facade import Experiment, ExperimentError, Federation, run
from facade.algorithms import farthest_facade
from facade.algorithms.seeding import health, revival
from facade.algorithms.seeding.farthest import AVERAGING_ROUNDS, NEVER, Calendar
from facade.cli import display
from facade.cli.progress import RunProgress
from facade.core import tree
from facade.core.engine import drive, play
from facade.core.messages import EVERYONE, Deliveries
from facade.core.turn import Turn
from facade.experiment.setup import set_up
from facade.runs.result import health_of_heads
from facade.runtimes.local import among_all
from facade.testing.contract import tiny
from facade.testing.driven import driven, one_turn, prepared
from seeded_runs import experiment, inbox, states


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
    for module in (farthest_facade, health, revival):
        monkeypatch.setattr(module, "MEMORY", 8)
    dead = lambda known, _: (torch.arange(4) > 1).expand(known.last.shape).clone()  # noqa: E731
    monkeypatch.setattr(farthest_facade, "dead", dead)
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
    revived = setup.algorithm.way._revive(one_turn(setup, closes), full)
    for name, leaf in revived.facade.heads.items():
        changed = (leaf != state.facade.heads[name]).flatten(2).any(2)
        assert changed.nonzero().tolist() == [[winner, 2]]
        assert torch.equal(leaf[winner, 2], state.seeding.private[name][winner])
    for leaf in tree.flatten(revived.facade.heads_memory).values():
        assert (leaf[winner, 2] == 0).all()
        assert int((leaf == 0).flatten(2).all(2).sum()) == 1
    heads = revived.facade.heads
    later = setup.algorithm.way._revive(one_turn(setup, closes + 1), revived)
    assert all(torch.equal(leaf, heads[name]) for name, leaf in later.facade.heads.items()), "a window closes once"
    late = setup.algorithm.way._revive(one_turn(setup, closes + 1), full)  # the winner was offline when it closed
    assert all(torch.equal(leaf, heads[name]) for name, leaf in late.facade.heads.items())
    missed = full._replace(seeding=full.seeding._replace(stage=full.seeding.stage - 1))  # offline in all of the window
    stale = setup.algorithm.way._revive(one_turn(setup, closes), missed)
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
    with RunProgress(Console(file=said, width=80)) as progress:
        result = run(experiment("8", 120, "evaluation.every=20", heads=2, seeding="none"), progress=progress)
    users = set(result.summary["choice"])
    dead = {int(j) for j in result.summary["dead_heads"]}
    assert len(users) == 1
    assert dead == {0, 1} - users
    assert said.getvalue().count("is dead since round") == 1, "told when it is seen, not at every evaluation"
    heard = [row["head_last_heard"] for row in result.rows if row["kind"] == "round" and row["round"] == 120]
    assert dead == {j for j in (0, 1) if 120 - 1 - max(last[j] for last in heard) >= health.MEMORY}
