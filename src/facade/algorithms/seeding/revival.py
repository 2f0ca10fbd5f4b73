"""Seeding heads again that have died: nobody was heard to choose them for MEMORY rounds.

Every MEMORY rounds there is a window in which nodes gossip who is worst served among those that hold a head dead.
When it closes, that node puts its private head in the dead one's place. It sends the head as any other, and nodes
that it fits better than theirs will choose it; so nothing but bids needs to be gossiped.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from facade.algorithms.seeding.bids import best_bids
from facade.algorithms.seeding.farthest import NEVER, Calendar, Seeding, fitted, regret, without_the_few
from facade.algorithms.seeding.health import MEMORY
from facade.core import tree
from facade.core.messages import Inbox
from facade.core.tree import Params
from facade.core.turn import Turn

NO_BID = -4 * NEVER
"""Less than any bid, so that nodes which make none pass all others on."""


class ModelParts(NamedTuple):
    """What nodes have when they bid: core, all heads [S, k, ...], and the head each uses."""

    core: Params
    heads: Params
    head: Params


class Moment(NamedTuple):
    """Where a round lies between windows."""

    window: int
    """Which window it is or was last; 0 = none yet."""
    place: int
    """Rounds since that one opened."""


def moment(turn: Turn, calendar: Calendar) -> Moment:
    """Windows open MEMORY rounds after all seeds were found, and every MEMORY rounds from then on."""
    return Moment(*divmod(max(turn.round - calendar.ready(turn.spread), 0), MEMORY))


def revive(turn: Turn, seeding: Seeding, model: ModelParts, dead: Tensor, calendar: Calendar) -> tuple[Seeding, Tensor]:
    """Bid while a window is open, and where it closes with one's own bid the best, replace the first of the
    dead heads (dead [S, k]) by the private one, once: the second result [S, k] says where. A node that is offline
    when the window closes does so when it is back."""
    window, place = moment(turn, calendar)
    if window == 0:
        return seeding, torch.zeros_like(dead)
    stage = calendar.heads + window
    if place < turn.spread:
        return _bid(turn, seeding, model, dead.any(1), stage), torch.zeros_like(dead)
    won = (seeding.origin == torch.from_numpy(turn.shard.nodes)) & (seeding.stage == stage)
    closed = seeding._replace(origin=torch.where(won, -1, seeding.origin))
    return closed, dead & (dead.cumsum(1) == 1) & won.unsqueeze(1)


def listen(turn: Turn, seeding: Seeding, inbox: Inbox, calendar: Calendar) -> Seeding:
    """Keep the best bid heard while a window is open."""
    window, place = moment(turn, calendar)
    return best_bids(seeding, inbox)[0] if window and place < turn.spread else seeding


def _bid(turn: Turn, seeding: Seeding, model: ModelParts, dead: Tensor, stage: int) -> Seeding:
    """Nodes that hold a head dead (dead [S]) bid their regret, once in a window."""
    behind = seeding.stage < stage
    bidders = torch.nonzero(behind & dead).flatten()
    opened = seeding._replace(
        score=torch.where(behind, NO_BID, seeding.score),
        origin=torch.where(behind, -1, seeding.origin),
        stage=torch.where(behind, stage, seeding.stage),
        own=seeding.own.index_fill(0, bidders, torch.nan),
    )
    if not len(bidders):
        return opened
    opened = fitted(turn, opened, model.core, model.head)
    heads, core = (tree.rows(part, bidders) for part in (model.heads, model.core))
    some = turn.only(bidders)
    score = without_the_few(some, regret(some, core, heads, opened.own[bidders]))
    nodes = torch.from_numpy(turn.shard.nodes)
    return opened._replace(
        score=opened.score.index_copy(0, bidders, score), origin=opened.origin.index_copy(0, bidders, nodes[bidders])
    )
