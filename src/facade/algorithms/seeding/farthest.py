"""Farthest-first seeding of FACADE's heads: start the clustering well, as k-means++ does for k-means.

After the warm-up nodes average a few times without training, so that their cores agree and a head
fitted on one suits the others. Then every node fits a private head on its own data. The first seed is
the private head of a randomly preferred node; each further seed is that of the node worst served by the
seeds so far.
Nodes agree on it by max-gossip: each keeps the best bid it has heard. What happens in a round follows
from the round's number alone, so no coordinator is needed; a node that was offline catches up in its
next round.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from facade.algorithms.core_and_heads import joined, put
from facade.algorithms.seeding import linear_heads
from facade.algorithms.seeding.bids import best_bids
from facade.core import seeds, tree
from facade.core.messages import Inbox
from facade.core.tree import Params
from facade.core.turn import Turn

AVERAGING_ROUNDS = 3
"""Rounds of averaging without training before heads are fitted."""
FITTING_STEPS = 80
"""Gradient steps of a private head."""
FEWEST = 5
"""Samples a node must hold for its head to become a seed while others hold more."""
MOST_MISSED = 0.25
"""Share of messages that may be missing, for loss or nodes that are offline, without a warning."""
NEVER = 1e9
"""More than any bid that has a reason."""


class Seeding(NamedTuple):
    """Per node: its private head, the best bid it knows, and the seeds found so far."""

    private: Params
    """[S, ...] fitted to the node's own data."""
    own: Tensor
    """[S] float64 loss of the private head on the node's own rows; NaN before it was fitted."""
    candidate: Params
    """[S, ...] the head of the best bid."""
    score: Tensor
    """[S] float64 the best bid's score: a random priority for the first seed, then regret."""
    origin: Tensor
    """[S] the node that made the bid; -1 when there is none."""
    stage: Tensor
    """[S] the seed a node is bidding for; -1 before the first, k when all are found."""
    seeds: Params
    """[S, k, ...]"""
    found: Tensor
    """[S, k] the seeds that a node knows: one that was away may have missed some."""


class Calendar(NamedTuple):
    """When nodes average, look for seeds, and have them all: every node reads it off a round's number."""

    warmup: int
    heads: int

    def stage(self, turn: Turn) -> int:
        """Which seed a round after the warm-up looks for; below 0 while nodes average, k when all
        are found."""
        return min((turn.round - self.warmup - AVERAGING_ROUNDS) // turn.spread, self.heads)

    def ready(self, spread: int) -> int:
        """The round in which all seeds are found."""
        return self.warmup + AVERAGING_ROUNDS + self.heads * spread


def start(heads: Params) -> Seeding:
    """Nothing fitted, nothing found."""
    one = tree.map(lambda leaf: leaf[:, 0], heads)
    nodes, count = next(iter(heads.values())).shape[:2]
    nothing = torch.full((nodes,), -1)
    zero = torch.zeros(nodes, dtype=torch.float64)
    return Seeding(
        one, zero * torch.nan, one, zero, nothing, nothing, heads, torch.zeros(nodes, count, dtype=torch.bool)
    )


def advance(turn: Turn, seeding: Seeding, core: Params, head: Params, stage: int) -> Seeding:
    """Bring every node to the given stage: keep the seed it agreed on, then bid for the next."""
    count = seeding.found.shape[1]
    behind = seeding.stage < stage
    if not behind.any():
        return seeding
    agreed = behind & (seeding.stage >= 0)
    place = torch.arange(count) - seeding.stage.unsqueeze(1)
    late = (seeding.stage < 0).unsqueeze(1).expand_as(place)
    seeding = seeding._replace(seeds=put(seeding.seeds, head, late))
    seeding = seeding._replace(
        # A seed fills also the places after it: until others are found there, it is the best known.
        seeds=put(seeding.seeds, seeding.candidate, agreed.unsqueeze(1) & (place >= 0)),
        found=seeding.found | (agreed.unsqueeze(1) & (place == 0)),
        stage=torch.where(behind, stage, seeding.stage),
    )
    if stage == count:
        return seeding
    seeding = fitted(turn, seeding, core, head)
    nodes = torch.from_numpy(turn.shard.nodes)
    score = without_the_few(turn, _score(turn, seeding, core, stage))
    bid = seeding._replace(candidate=seeding.private, score=score, origin=nodes)
    return tree.where(behind, bid, seeding)


def listen(seeding: Seeding, inbox: Inbox) -> Seeding:
    """Keep the best bid heard, and the head that comes with it."""
    seeding, best = best_bids(seeding, inbox)
    return seeding._replace(candidate=tree.rows(inbox.pool["head"], best))


def fitted(turn: Turn, seeding: Seeding, core: Params, head: Params) -> Seeding:
    """Fit the private heads of the nodes that have none yet."""
    missing = torch.nonzero(seeding.own.isnan()).flatten()
    if not len(missing):
        return seeding
    some = turn.only(missing)
    cores, commons = tree.rows(core, missing), tree.rows(head, missing)
    private = private_heads(some, cores, commons)
    own = some.learner.score(cores, tree.map(lambda leaf: leaf.unsqueeze(1), private), some.all_samples())
    kept = tree.map(lambda old, new: old.index_copy(0, missing, new), seeding.private, private)
    return seeding._replace(private=kept, own=seeding.own.index_copy(0, missing, own[:, 0].double()))


def private_heads(turn: Turn, core: Params, head: Params) -> Params:
    """[S, ...] heads fitted to each node's own data on top of a frozen core."""
    if turn.learner.head_is_linear:
        return linear_heads.fit_each(turn.learner, core, head, turn.all_samples(), FITTING_STEPS)
    model = joined(core, head)
    samples = turn.samples("private", FITTING_STEPS)
    return turn.learner.split(turn.learner.fit(model, turn.learner.memory(model), samples, only="head").params)[1]


def _score(turn: Turn, seeding: Seeding, core: Params, stage: int) -> Tensor:
    """[S] float64: what a node bids for a seed."""
    if stage == 0:
        return torch.from_numpy(seeds.uniform(turn.shard.seed, "priority", 0, turn.shard.nodes, 1)[:, 0])
    earlier = tree.map(lambda leaf: leaf[:, :stage], seeding.seeds)
    return regret(turn, core, earlier, seeding.own)


def regret(turn: Turn, core: Params, heads: Params, own: Tensor) -> Tensor:
    """[S] how much more the best of the heads [S, j, ...] costs a node than its private one."""
    losses = turn.learner.score(core, heads, turn.all_samples())
    return losses.min(1).values.double() - own


def without_the_few(turn: Turn, score: Tensor) -> Tensor:
    """The bids [S], below all others' where a node has next to no samples: a head fitted to them suits nobody
    else. All that is sent must be finite."""
    few = torch.tensor([len(rows) < FEWEST for rows in turn.shard.data.rows])
    score = score.nan_to_num(-NEVER).clamp(-NEVER, NEVER)
    return torch.where(few, score - 2 * NEVER, score)


def bid(seeding: Seeding) -> dict[str, Any]:
    """What a message says of the head it carries: 16 bytes."""
    return {"score": seeding.score, "origin": seeding.origin}
