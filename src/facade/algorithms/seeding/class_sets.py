"""Which classes nodes have. Those that have none in common cannot be compared by how their samples look.

Where two nodes have much the same classes or, some of them, none in common, there may be groups that classes alone tell
apart: a node never meets those of another group, and a head of its own need not know them. Where classes overlap from
node to node, as where chance divided them, that is not so, and they decide nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor

from facade.algorithms.seeding.class_means import FEWEST_ROWS, MOST_ROWS
from facade.core.messages import Inbox, listed_deliveries

MUCH_THE_SAME = 0.55
"""Of the classes that either of two nodes has, the share that both have: in the mean over those with some in common."""
LACKING = 0.45
"""Share of its group's samples in classes that a node lacks, from which on it may divide the group by classes; in the
smaller of two groups it is a half or more."""
DISJOINT = 0.25
"""How much more of the samples of a node's classes must be in its half than in the other, in the mean over a half."""
BEFORE_LOOKS = 1000.0
"""What is added to a bid by classes; looks give the root of MOST_ROWS at most."""


def overlaps(inbox: Inbox, sums: Tensor, classes: int) -> Tensor:
    """[S, 4] float64: of those that a node heard, the share that has no class in common with it, the share that has
    some, the mean of the shares of classes that they have in common, and 0; `sums` [M, room] are their own class sums.
    With one class there is nothing to tell apart, so that to have one in common counts as no share."""
    has = sums[:, :classes] * MOST_ROWS > FEWEST_ROWS
    receiver, message = listed_deliveries(inbox)
    mine, theirs = has[inbox.own[receiver]], has[message]
    both, either = (mine & theirs).sum(1).double(), (mine | theirs).sum(1).clamp(min=1).double()
    share = torch.where(both > 1, both / either, 0.0)
    terms = torch.stack([(both == 0).double(), (both > 0).double(), share, torch.zeros_like(share)], 1)
    total = torch.zeros(len(inbox.own), 4, dtype=torch.float64).index_add_(0, receiver, terms)
    return total / torch.bincount(receiver, minlength=len(total)).clamp(min=1).unsqueeze(1)


def may_tell_apart(overlap: Tensor, n: int) -> Tensor:
    """[S] whether classes may tell groups of n nodes apart, by the averages over all of what `overlaps` gives: one node
    that has no class in common with the others makes two pairs in n."""
    disjoint, overlapping, shares, _ = overlap.unbind(1)
    return (disjoint * n > disjoint + overlapping) & (shares >= MUCH_THE_SAME * overlapping)


def bid(own: Tensor, group: Tensor, classes: int) -> float:
    """What a node adds to its bid, by its class sums and those of its group."""
    rows = group[:classes].clamp(min=0)
    lacking = rows[own[:classes] == 0].sum() / rows.sum().clamp(min=FEWEST_ROWS / MOST_ROWS)
    return BEFORE_LOOKS if lacking >= LACKING else 0.0


def decide(score: Tensor) -> Tensor:
    """[...] whether bids are by classes."""
    return score >= BEFORE_LOOKS / 2


def shared(one: Tensor, other: Tensor, classes: int) -> bool:
    """Whether two nodes have a class in common, by their class sums."""
    return bool((one[:classes] * other[:classes] > 0).any())


def nearer(own: Tensor, new: Tensor, old: Tensor, classes: int) -> Tensor:
    """From -1 to 1: how much more of the samples of a node's classes, class by class, are in the new half of a group
    than in the old one."""
    rows, here, there = own[:classes].double(), new[:classes].clamp(min=0), old[:classes].clamp(min=0)
    more = (here - there) / (here + there).clamp(min=FEWEST_ROWS / MOST_ROWS / 1000)
    return (rows * more).sum() / rows.sum().clamp(min=1 / MOST_ROWS)
