"""Data of a whole federation: images held once, rows per node, test sets per cluster."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from facade import seeds

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Labelled:
    """Inputs and their labels: uint8 images [N, channels, height, width], or float rows [N, values]."""

    x: Tensor
    y: Tensor
    """[N] int64 class numbers."""

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, rows: Tensor | slice) -> Labelled:
        return Labelled(self.x[rows], self.y[rows])


@dataclass(frozen=True)
class Dataset:
    """One source as it was loaded, before it is divided among nodes."""

    train: Labelled
    test: Labelled
    classes: list[str]
    mean: list[float] = field(default_factory=lambda: [0.0])
    std: list[float] = field(default_factory=lambda: [1.0])
    """Normalisation per channel, applied to [0, 1] values when a batch is used."""


@dataclass(frozen=True)
class Holdings:
    """The training rows of some nodes; this is all the data that an algorithm can reach."""

    samples: Labelled
    nodes: Ids
    """[S] global ids, ascending."""
    rows: list[Ids]
    """Per node, the numbers of its samples."""

    def only(self, nodes: Ids) -> Holdings:
        """The same for fewer nodes; the images stay shared."""
        keep = np.searchsorted(self.nodes, nodes)
        return Holdings(self.samples, nodes, [self.rows[i] for i in keep])

    def draw(self, seed: int, purpose: str, round: int, which: slice, count: int) -> Labelled:
        """x [b, count, ...] and y [b, count] of the nodes in rows `which`: `count` samples each,
        addressed by (seed, purpose, round, node)."""
        nodes, rows = self.nodes[which], self.rows[which]
        sizes = np.array([len(r) for r in rows])
        drawn = np.empty((len(rows), count), np.int64)
        for size in np.unique(sizes):
            group = np.nonzero(sizes == size)[0]
            picks = seeds.picks(seed, purpose, round, nodes[group], int(size), count)
            for i, pick in zip(group, picks, strict=True):
                drawn[i] = rows[i][pick]
        return self.samples[torch.from_numpy(drawn)]


@dataclass(frozen=True)
class Federation:
    """Who holds which data, and what each node is tested on."""

    training: Holdings
    tests: list[Labelled]
    """One test set per cluster (or per node in a natural federation)."""
    test_of: Ids
    """[n] number of each node's test set."""
    classes: list[str]
    mean: list[float]
    std: list[float]
    cluster: Ids | None = None
    """[n] ground-truth cluster, where it is known. Only metrics look at it."""
    validations: list[Labelled] | None = None
    """Like `tests`, cut from the training data; numbered by `test_of` too."""
    leftover: int = 0
    """Training images that no node holds."""
    overlapping: bool = False
    """Whether nodes may hold the same image (partition "sampled")."""

    @property
    def n(self) -> int:
        """Number of nodes."""
        return len(self.training.nodes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return tuple(self.training.samples.x.shape[1:])
