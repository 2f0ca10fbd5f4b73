"""The messages that nodes heard, side by side, and the parts of them that a guard may judge."""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any, NamedTuple

import torch
from torch import Tensor

from facade.core import tree
from facade.core.messages import Deliveries, Inbox
from facade.core.tree import Params

UNCHECKED, A_LIE = 1, 2
"""What a message says could be true or not; proves that its sender is not honest."""


class Heard(NamedTuple):
    """What b nodes heard: m places for each, its own message in one of them."""

    messages: Any
    """Tree [b, m, ...]; a node's own message also where nothing was heard."""
    sender: Tensor
    """[b, m] ids, ascending; -1 where nothing was heard."""
    own: Tensor
    """[b, m] which place holds the node's own message."""

    @property
    def here(self) -> Tensor:
        """[b, m] which places hold a message."""
        return self.sender >= 0

    @property
    def others(self) -> Tensor:
        """[b, m] which places hold another node's message."""
        return self.here & ~self.own


class MessagePart(NamedTuple):
    """A part of messages: one entry that holds weights."""

    entry: str
    """Its path in the message."""
    held: Any
    """Tree [b, m, ...]: what the node that heard it has in its place."""
    group: Tensor
    """[b, m] of a node's places, those with the same number are averaged."""
    judged: Tensor
    """[b, m] whether the node's own samples can judge it."""
    losses: Callable[[Any], Tensor] | None
    """[b, p] losses on the node's own samples of its model with each of a tree [b, p, ...] in its place; None where
    samples say nothing of this part."""
    affordable: int = 2
    """How many values a node may judge, besides its own: each takes a pass through the whole model."""


def heard(inbox: Inbox, rows: slice) -> Heard:
    """What the hosted nodes in these rows heard."""
    own = inbox.own[rows]
    if isinstance(inbox.deliveries, Deliveries):
        receiver, message = inbox.members()
        mine = (receiver >= rows.start) & (receiver < rows.stop)
        receiver, message = receiver[mine] - rows.start, message[mine]
        counts = torch.bincount(receiver, minlength=len(own))
        place = torch.arange(len(receiver)) - (torch.cumsum(counts, 0) - counts)[receiver]
        row = own.unsqueeze(1).repeat(1, int(counts.max()))
        here = torch.zeros_like(row, dtype=torch.bool)
        row[receiver, place], here[receiver, place] = message, True
    else:
        row = torch.arange(len(inbox.senders)).repeat(len(own), 1)
        here = torch.ones_like(row, dtype=torch.bool)
    sender = torch.where(here, inbox.senders[row], -1)
    return Heard(tree.map(lambda leaf: leaf[row], inbox.pool), sender, here & (row == own.unsqueeze(1)))


def as_inbox(heard: Heard) -> Inbox:
    """The same as an inbox of its own, in which every node has its own copies."""
    places = heard.sender.shape[1]
    kept = torch.nonzero(heard.here.flatten()).flatten()
    pool = tree.map(lambda leaf: leaf.flatten(0, 1), heard.messages)
    pool = pool if heard.here.all() else tree.rows(pool, kept)
    own = torch.nonzero(heard.own.flatten()[kept]).flatten()
    other = torch.nonzero(heard.others.flatten()[kept]).flatten()
    return Inbox(pool, heard.sender.flatten()[kept], own, Deliveries(kept[other] // places, other))


def side_by_side(own: Any, like: Any) -> Any:
    """Tree [b, p, ...]: what nodes have themselves, tree [b, ...], once in each place of a tree `like` [b, p, ...]."""
    places = next(iter(tree.flatten(like).values())).shape[1]
    return tree.map(lambda leaf: leaf.unsqueeze(1).expand(-1, places, *leaf.shape[1:]), own)


def entry_of(message: Any, path: str) -> Any:
    """What a message has at a path."""
    for name in path.split("/"):
        message = message[name]
    return message


def with_entry(message: Any, path: str, value: Any) -> Any:
    """The message with something else at a path."""
    name, _, rest = path.partition("/")
    return {**message, name: with_entry(message[name], rest, value) if rest else value}


def variances(message: Any, names: Set[str]) -> frozenset[str]:
    """The paths of a message's tensors that are variances of the model; `names` are those that they have in it."""
    return frozenset(path for path in tree.flatten(message) if path.rpartition("/")[2] in names)


def as_matrix(part: Any) -> Tensor:
    """[b, m, d] all values of a part [b, m, ...], one after the other by name: who sends a part and who holds it may
    have its tensors in different orders."""
    leaves = [leaf for _, leaf in sorted(tree.flatten(part).items())]
    if any(leaf.stride(1) for leaf in leaves):
        return torch.cat([leaf.flatten(2) for leaf in leaves], 2)
    once = torch.cat([leaf[:, :1].flatten(2) for leaf in leaves], 2)  # the same in all places
    return once.expand(-1, leaves[0].shape[1], -1)


def from_matrix(matrix: Tensor, like: Any) -> Any:
    """The inverse of `as_matrix`, for any number of places, in the form of `like` [b, m, ...]."""
    leaves, places = dict(sorted(tree.flatten(like).items())), matrix.shape[:2]
    sizes = [leaf[0, 0].numel() for leaf in leaves.values()]
    pieces = torch.split(matrix, sizes, dim=2)
    flat: Params = {
        name: piece.reshape(*places, *leaf.shape[2:])
        for (name, leaf), piece in zip(leaves.items(), pieces, strict=True)
    }
    return tree.unflatten(flat, like)
