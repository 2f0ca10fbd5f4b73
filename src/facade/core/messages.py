"""What passes between nodes and how it is averaged.

The round loop yields a `Post` and is sent an `Inbox`; a runtime is only a way of turning the one
into the other. Mixing adds the messages that arrived in ascending node id, self in its place, and
then divides: the order is fixed, so every runtime gives the same bits.
"""

from __future__ import annotations

import dataclasses
import enum
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from facade.core import tree
from facade.core.sums import row_sums, sums_by_waves, waves
from facade.core.types import Row


class Everyone(enum.Enum):
    """A symbol for "from every node", so that n(n-1) edges are never written down."""

    EVERYONE = "everyone"


EVERYONE: Final = Everyone.EVERYONE


class Edges(NamedTuple):
    """Directed edges sorted by (receiver, sender)."""

    receiver: Tensor
    """[E] row of the receiving node in its shard."""
    sender: Tensor
    """[E] id of the sending node."""


class Deliveries(NamedTuple):
    """Messages that arrived, sorted by (receiver, message)."""

    receiver: Tensor
    """[D] row of the receiving node in its shard."""
    message: Tensor
    """[D] row of the message in the pool."""


def delivered(wanted: Edges | Everyone, senders: Tensor) -> Deliveries | Everyone:
    """The edges as deliveries from a pool that has one message of each of `senders` [M], ascending."""
    if not isinstance(wanted, Edges):
        return wanted
    return Deliveries(wanted.receiver, torch.searchsorted(senders, wanted.sender.contiguous()))


@dataclass(frozen=True)
class Post:
    """What a shard publishes in a round and whom its nodes want to hear."""

    round: int
    outbox: Any
    """Tree [S, ...]: one message per hosted node."""
    wanted: Edges | Everyone
    state: Any
    """The shard's state at the start of this round: all that a checkpoint needs."""
    rows: list[Row] = field(default_factory=list)
    """Records made since the last post."""


@dataclass
class Inbox:
    """What arrived: a pool of messages and the deliveries that were made from it."""

    pool: Any
    """Tree [M, ...]: messages in ascending id of their senders, the shard's own among them; None when they have been
    used."""
    senders: Tensor
    """[M] ids, ascending."""
    own: Tensor
    """[S] row in the pool of each hosted node's own message."""
    deliveries: Deliveries | Everyone
    """Who heard which of them, own messages left out."""

    def members(self) -> Deliveries:
        """The deliveries, with every node's own message in its place."""
        if not isinstance(self.deliveries, Deliveries):
            raise TypeError("everyone's messages arrived: there are no deliveries to list")
        receiver = torch.cat([self.deliveries.receiver, torch.arange(len(self.own))])
        message = torch.cat([self.deliveries.message, self.own])
        order = torch.argsort(receiver * len(self.senders) + message)
        return Deliveries(receiver[order], message[order])


def only_from(inbox: Inbox, which: Tensor) -> Inbox:
    """The inbox without the messages of some senders: of the pool [M], those that are not among `which`. Every node
    has its own."""
    if which.all():
        return inbox
    receiver, message = listed_deliveries(inbox)
    kept = which[message]
    return dataclasses.replace(inbox, deliveries=Deliveries(receiver[kept], message[kept]))


def of_nodes(inbox: Inbox, rows: Tensor) -> Inbox:
    """What some of the hosted nodes heard (rows ascending)."""
    if not isinstance(inbox.deliveries, Deliveries):
        return dataclasses.replace(inbox, own=inbox.own[rows])
    receiver, message = inbox.deliveries
    theirs = torch.isin(receiver, rows)
    deliveries = Deliveries(torch.searchsorted(rows, receiver[theirs]), message[theirs])
    return dataclasses.replace(inbox, own=inbox.own[rows], deliveries=deliveries)


def listed_deliveries(inbox: Inbox) -> Deliveries:
    """The deliveries one by one, also where they are everyone's."""
    if isinstance(inbox.deliveries, Deliveries):
        return inbox.deliveries
    message, receiver = (
        part.flatten()
        for part in torch.meshgrid(torch.arange(len(inbox.senders)), torch.arange(len(inbox.own)), indexing="xy")
    )
    other = message != inbox.own[receiver]
    return Deliveries(receiver[other], message[other])


class Total(NamedTuple):
    """Sums over some of the messages and how many went into each."""

    sums: Any
    counts: Tensor


def mean(inbox: Inbox, part: Any) -> Any:
    """Per hosted node, the mean of `part` (a tree over the pool) over itself and the peers heard."""
    everybody = torch.zeros(len(inbox.senders), dtype=torch.int64)
    return tree.map(lambda leaf: leaf[:, 0], means(totals(inbox, part, everybody, 1)))


def totals(inbox: Inbox, part: Any, group: Tensor, groups: int) -> Total:
    """Per hosted node and group, the sum of `part` over the members that belong to the group.

    `group` [M] gives each pooled message its group, below `groups`. Returns sums [S, groups, ...],
    zero where nobody is, and counts [S, groups].
    """
    size = len(inbox.own)
    if inbox.deliveries is EVERYONE:
        one = _totals(part, *torch.sort(group, stable=True), groups)
        return tree.map(lambda leaf: leaf.expand(size, *leaf.shape).clone(), one)
    receiver, message = inbox.members()
    segment = receiver * groups + group[message]
    order = torch.argsort(segment, stable=True)
    flat = _totals(part, segment[order], message[order], size * groups)
    return tree.map(lambda leaf: leaf.view(size, groups, *leaf.shape[1:]), flat)


def counts(inbox: Inbox, group: Tensor, groups: int) -> Tensor:
    """[S, groups] of each hosted node and the peers it heard, how many belong to each group; `group` as in `totals`."""
    size = len(inbox.own)
    if not isinstance(inbox.deliveries, Deliveries):
        return torch.bincount(group, minlength=groups).expand(size, groups).clone()
    receiver = torch.cat([inbox.deliveries.receiver, torch.arange(size)])
    chosen = group[torch.cat([inbox.deliveries.message, inbox.own])]
    return torch.bincount(receiver * groups + chosen, minlength=size * groups).view(size, groups)


def means(total: Total) -> Any:
    """Sums over counts, in the memory of the sums; where a count is zero, the sum's zeros."""
    return tree.map(lambda sums: sums.div_(per_row(total.counts.clamp(min=1), sums)), total.sums)


def weighted(inbox: Inbox, part: Any, members: Deliveries, weights: Tensor) -> Any:
    """Per hosted node, the sum of weights [D] times messages over `members`, in their order."""
    additions = waves(*members, weights)
    return tree.map(lambda leaf: sums_by_waves(leaf, additions, len(inbox.own)), part)


def per_row(values: Tensor, leaf: Tensor) -> Tensor:
    """`values`, one for each of the leaf's leading rows, shaped and typed to combine with it."""
    return values.view(*values.shape, *([1] * (leaf.dim() - values.dim()))).to(leaf.dtype)


def _totals(part: Any, segment: Tensor, row: Tensor, segments: int) -> Total:
    """Sums of rows that are listed by segment (ascending)."""
    counts = torch.bincount(segment, minlength=segments)
    return Total(tree.map(lambda leaf: row_sums(leaf, row, counts), part), counts)
