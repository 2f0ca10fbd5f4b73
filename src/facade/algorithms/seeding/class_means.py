"""How the samples of nodes look, class by class, and which of several groups a node's samples look like.

A sample is seen through the model as it was before the first round, which is the same at every node. Nodes are
compared by the mean of what it sees in each class: how frequent a class is at a node has no part in that, and a class
that one of two nodes lacks says nothing of either. Everything is judged on the node's own samples, in standard errors
over them; means are of other nodes' samples, so that fitting earns nothing.

The class sums of a node, or of a group of nodes, are one row of numbers: for each class, the number of its samples, in
units of MOST_ROWS, then the sum of what is seen of them. Of d values seen, they hold as many as there is room for.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from facade.core import seeds
from facade.core.tree import Params
from facade.core.turn import Turn

MOST_ROWS = 200
"""Samples of a node that are looked at, at most."""
MOST_VALUES = 1024
"""Values of a sample that are kept, at most."""
FEWEST_ROWS = 0.5
"""Rows of a class that a group's sums must count for its mean to be known; counts are estimates."""


class Seen(NamedTuple):
    """What is seen of one node's samples."""

    z: Tensor
    """[rows, values] float64."""
    y: Tensor
    """[rows] classes."""
    weight: Tensor
    """[values] by which squared differences count: one over the spread within classes, kept from extremes."""

    @property
    def width(self) -> int:
        """Values that are seen of a sample."""
        return self.z.shape[1]


def most_numbers(classes: int) -> int:
    """How many numbers class sums need at most."""
    return classes * (1 + MOST_VALUES)


def values_seen(room: int, classes: int, given: int) -> int:
    """How many values of a sample are kept, of those that are given, in class sums of so many numbers."""
    return min(given, room // classes - 1)


def seen(turn: Turn, untrained: Params, room: int) -> list[Seen]:
    """What each hosted node sees of its samples."""
    learner = turn.learner
    data = turn.shard.data.at_most(MOST_ROWS, turn.shard.seed, "look")

    def look(z: Tensor, y: Tensor) -> Seen:
        z = _folded(z.double(), values_seen(room, learner.outputs, z.shape[1]), turn.shard.seed)
        return Seen(z, y, _weight(z, y, learner.outputs))

    return learner.with_representation(untrained, data, look)


def _folded(z: Tensor, width: int, seed: int) -> Tensor:
    """[rows, width] sums of the values [rows, d] with random signs, each in one place drawn at random, the same for all
    nodes; the values themselves where there is room. On a scale on which samples have about unit length."""
    given = z.shape[1]
    if given > width:
        draw = torch.from_numpy(seeds.uniform(seed, "fold", 0, np.arange(given), 2))
        signed = z * torch.where(draw[:, 0] < 0.5, -1.0, 1.0)
        z = z.new_zeros(len(z), width).index_add_(1, (draw[:, 1] * width).long(), signed)
    return z.div(given**0.5)


def _weight(z: Tensor, y: Tensor, classes: int) -> Tensor:
    counts, sums = _counts_and_sums(z, y, classes)
    within = z - (sums / counts.clamp(min=1).unsqueeze(1))[y]
    spread = within.square().sum(0) / max(len(z) - int((counts > 0).sum()), 1)
    return 1 / (spread / 2 + spread.mean() / 2).clamp(min=1e-9)


def _counts_and_sums(z: Tensor, y: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    counts = torch.bincount(y, minlength=classes).double()
    return counts, z.new_zeros(classes, z.shape[1]).index_add_(0, y, z)


def class_sums(of: Seen, classes: int, room: int) -> Tensor:
    """[room] of one node."""
    counts, sums = _counts_and_sums(of.z, of.y, classes)
    numbers = torch.cat([counts, sums.flatten()]) / MOST_ROWS
    return torch.cat([numbers, numbers.new_zeros(room - len(numbers))])


def by_class(sums: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Rows [..., classes], in units of MOST_ROWS, and norms of what is seen of them [..., classes], of class sums
    [..., room]."""
    values = sums.shape[-1] // classes - 1
    of_classes = sums[..., classes : classes * (values + 1)].reshape(*sums.shape[:-1], classes, values)
    return sums[..., :classes], of_classes.square().sum(-1).sqrt()


def largest_norm(own: Tensor, classes: int) -> Tensor:
    """[S] the largest norm of a class mean, of nodes' own class sums [S, room]."""
    counts, norms = by_class(own, classes)
    return (norms / counts.clamp(min=1 / MOST_ROWS)).max(-1).values


def preference(of: Seen, here: Tensor, there: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Of two groups' class sums [room]: by how much less the node's samples differ from those `here` than from those
    `there`, and that in standard errors; both 0 where there is nothing to compare."""
    near, far = (_differences(of, sums, classes) for sums in (here, there))
    return _in_standard_errors((far - near)[~(near + far).isnan()])


def strangeness(of: Seen, group: Tensor, classes: int) -> Tensor:
    """By how many standard errors the node's samples differ from a group's, in a way that they have in common: what is
    different in one half of them is looked for in the other."""
    counts, means = _means(of, group, classes)
    half = torch.empty_like(of.y)
    order = torch.argsort(of.y, stable=True)
    half[order] = torch.arange(len(order)) % 2
    terms = []
    for one in (0, 1):
        other = half != one
        known, sums = _counts_and_sums(of.z[other], of.y[other], classes)
        shift = sums / known.clamp(min=1).unsqueeze(1) - means
        rows = (half == one) & ((known > 0) & (counts > FEWEST_ROWS))[of.y]
        y = of.y[rows]
        alike = ((of.z[rows] - means[y]) * shift[y] * of.weight).sum(1)
        terms.append(alike - of.width / counts[y])  # what the group's own noise adds to both halves
    return _in_standard_errors(torch.cat(terms))[1]


def _differences(of: Seen, group: Tensor, classes: int) -> Tensor:
    """[rows] squared differences from the group's mean of the class, less what the noise of that mean adds to them; NaN
    where it is unknown."""
    counts, means = _means(of, group, classes)
    counts = torch.where(counts > FEWEST_ROWS, counts, torch.nan)[of.y]
    return ((of.z - means[of.y]).square() * of.weight).sum(1) - of.width / counts


def _means(of: Seen, group: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Rows [classes] and means [classes, values] of a group."""
    numbers = group[: classes * (of.width + 1)].double() * MOST_ROWS
    counts, sums = numbers[:classes], numbers[classes:].view(classes, of.width)
    return counts, sums / counts.clamp(min=FEWEST_ROWS).unsqueeze(1)


def _in_standard_errors(terms: Tensor) -> tuple[Tensor, Tensor]:
    """The sum of terms, and that over its standard error about 0."""
    total, squares = terms.sum(), terms.square().sum()
    return total, total / squares.sqrt() if squares > 0 else torch.zeros_like(total)
