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

from statistics import NormalDist
from typing import Any, NamedTuple

import torch
from torch import Tensor

from facade.algorithms.core_and_heads import joined, put
from facade.algorithms.seeding import linear_heads
from facade.algorithms.seeding.linear_heads import FOLDS
from facade.core import seeds, tree
from facade.core.messages import Deliveries, Inbox, waves
from facade.core.tree import Params
from facade.core.turn import Turn

AVERAGING_ROUNDS = 3
"""Rounds of averaging without training before heads are fitted."""
FITTING_STEPS = 80
"""Gradient steps of a private head."""
FEWEST = FOLDS
"""Samples a node must hold for its head to become a seed while others hold more."""
MOST_MISSED = 0.25
"""Share of messages that may be missing, for loss or nodes that are offline, without a warning."""
NEVER = 1e9
"""More than any bid that has a reason."""
CHANCE = 0.05
"""How likely, at most, noise alone makes another head look needed."""


def needed(n: int) -> float:
    """Standard errors by which the heads found so far must fail one of n nodes for another head to be needed: what
    the largest of n normal deviates exceeds by chance. One head too few makes clusters share, one too many costs a
    point or two: so it errs towards more."""
    return NormalDist().inv_cdf(1 - CHANCE / n)


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
    """[S, k] the seeds that are there; with `auto` fewer than k may be needed."""


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


def advance(turn: Turn, seeding: Seeding, core: Params, head: Params, stage: int, auto: bool = False) -> Seeding:
    """Bring every node to the given stage: keep the seed it agreed on, then bid for the next. With `auto`,
    bids are in standard errors and a seed is kept only where it is needed. When it is not, nothing changes
    for the next stage: the bid stands, to be rejected again."""
    count = seeding.found.shape[1]
    behind = seeding.stage < stage
    if not behind.any():
        return seeding
    rejected = behind & (seeding.stage > 0) & (seeding.score < needed(turn.shard.n)) & auto
    agreed = behind & (seeding.stage >= 0) & ~rejected
    place = torch.arange(count) - seeding.stage.unsqueeze(1)
    late = (seeding.stage < 0).unsqueeze(1).expand_as(place)
    seeding = seeding._replace(seeds=put(seeding.seeds, head, late))
    seeding = seeding._replace(
        # A seed fills also the places after it: until others are found there, it is the best known.
        seeds=put(seeding.seeds, seeding.candidate, agreed.unsqueeze(1) & (place >= 0)),
        found=seeding.found | (agreed.unsqueeze(1) & (place == 0)),
        stage=torch.where(behind, stage, seeding.stage),
    )
    bidding = behind & ~rejected
    if stage == count or not bidding.any():
        return seeding
    seeding = fitted(turn, seeding, core, head)
    nodes = torch.from_numpy(turn.shard.nodes)
    score = without_the_few(turn, _score(turn, seeding, core, head, stage, auto))
    bid = seeding._replace(candidate=seeding.private, score=score, origin=nodes)
    return tree.where(bidding, bid, seeding)


def listen(seeding: Seeding, inbox: Inbox) -> Seeding:
    """Keep the best bid heard, and the head that comes with it."""
    seeding, best = best_bids(seeding, inbox)
    return seeding._replace(candidate=tree.rows(inbox.pool["head"], best))


def best_bids(seeding: Seeding, inbox: Inbox) -> tuple[Seeding, Tensor]:
    """Keep the best of the bids heard and one's own: the highest score, ties to the lower node.
    Also gives the message [S] that made it."""
    scores, origins = inbox.pool["bid"]["score"], inbox.pool["bid"]["origin"]
    best, score, origin = inbox.own.clone(), seeding.score.clone(), seeding.origin.clone()
    for rows, messages, _ in waves(*_heard(inbox)):
        new, by = scores[messages], origins[messages]
        own, held = score[rows], origin[rows]
        better = (by >= 0) & ((held < 0) | (new > own) | ((new == own) & (by < held)))
        rows, messages = rows[better], messages[better]
        best[rows], score[rows], origin[rows] = messages, scores[messages], origins[messages]
    return seeding._replace(score=score, origin=origin), best


def _heard(inbox: Inbox) -> Deliveries:
    """The deliveries; of everyone's messages, only the best bid has to be looked at."""
    if isinstance(inbox.deliveries, Deliveries):
        return inbox.deliveries
    scores = inbox.pool["bid"]["score"]
    winner = int(torch.nonzero(scores == scores.max())[0])
    receiver = torch.arange(len(inbox.own))
    return Deliveries(receiver, torch.full_like(receiver, winner))


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


def _score(turn: Turn, seeding: Seeding, core: Params, head: Params, stage: int, auto: bool) -> Tensor:
    """[S] float64: what a node bids for a seed."""
    if stage == 0:
        return torch.from_numpy(seeds.uniform(turn.shard.seed, "priority", 0, turn.shard.nodes, 1)[:, 0])
    earlier = tree.map(lambda leaf: leaf[:, :stage], seeding.seeds)
    if auto:
        return linear_heads.excess_of_each(turn.learner, core, head, earlier, turn.all_samples(), FITTING_STEPS)
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
