"""Samples and who holds them: inputs with labels, a source as it was loaded, the rows of some nodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from facade.core import seeds
from facade.core.types import Ids
from facade.data.columns import Column

TypeRange = tuple[int, int]
Scale = Literal["auto", "bits", "range", "standard", "none", "tokens"]
"""How values become inputs (`facade.data.scales`)."""


@dataclass(frozen=True)
class Labelled:
    """Inputs and their labels. Images [N, channels, height, width] and volumes [N, channels, depth, height, width] are
    uint8 or float32, rows [N, values] float32, rows of tokens int64."""

    x: Tensor
    y: Tensor
    """[N] int64 class numbers."""

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, rows: Tensor | slice) -> Labelled:
        return Labelled(self.x[rows], self.y[rows])


@dataclass(frozen=True)
class Dataset:
    """One source as it was loaded, before it is divided among nodes. Whoever divides it owns it and
    may overwrite the images."""

    train: Labelled
    test: Labelled
    classes: list[str]
    mean: list[float] = field(default_factory=lambda: [0.0])
    std: list[float] = field(default_factory=lambda: [1.0])
    """Normalisation per channel, applied when a batch is used: to [0, 1] values of bytes, or as `scale` says."""
    groups: list[list[int]] = field(default_factory=list)
    """Classes per cluster that skew "labels" uses where data.groups is not written."""
    node: Ids | None = None
    """[N] the node that holds each training row, where the source knows it (partition "natural")."""
    test_node: Ids | None = None
    """[N] the node that each test row belongs to; None: all nodes share the test set."""
    tests_held_out: bool = False
    """Whether the source has no test samples, and some of its samples were set apart for that."""
    notes: list[str] = field(default_factory=list)
    """What a reader should know of how the source was read, one sentence each."""
    sites: list[str] | None = None
    """Names of the nodes of a natural federation; None: they have numbers only."""
    cluster_of_site: Ids | None = None
    """[n] the cluster of every node of a natural federation, where the source knows it."""
    scale: Scale = "auto"
    """What data.scale comes to (`facade.data.scales`)."""
    type_range: TypeRange | None = None
    """Smallest and largest value of the integer type that samples were in before they were stored as floats."""
    columns: list[Column] = field(default_factory=list)
    """The columns of a table of which rows were made; none where they were made of something else."""
    standardised: bool = False
    """Whether rows were standardised by the training rows of the site that they are of."""
    group: Ids | None = None
    """[N] numbers; training rows of one group (a patient, say) are kept back for validation together, or not."""
    kept_back: NDArray[np.bool_] | None = None
    """[N] the training rows that the source sets apart for validation."""


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

    def at_most(self, count: int, seed: int, purpose: str) -> Holdings:
        """The same with so many rows of each node, drawn at random, where it has more."""
        picked = [
            rows[np.sort(seeds.picks(seed, purpose, 0, self.nodes[[i]], len(rows), count)[0])]
            if len(rows) > count
            else rows
            for i, rows in enumerate(self.rows)
        ]
        return Holdings(self.samples, self.nodes, picked)

    def everything(self, which: slice) -> Labelled:
        """x [1, rows, ...] and y [1, rows] of one node; where it holds a whole stretch, in the same memory."""
        (rows,) = self.rows[which]
        if len(rows) and np.array_equal(rows, np.arange(rows[0], rows[0] + len(rows))):
            held = self.samples[int(rows[0]) : int(rows[-1]) + 1]
            return Labelled(held.x.unsqueeze(0), held.y.unsqueeze(0))
        return self.samples[torch.from_numpy(rows).unsqueeze(0)]

    def log_shares(self, which: slice, classes: int) -> Tensor:
        """[b, classes] float64: the logarithm of each class's share of a node's rows, relative to that of its most
        frequent class: 0 for that one, and for all where they are equally frequent. Half a row is added to every
        count, so that no class is impossible."""
        labels = self.samples.y.numpy()
        counts = np.stack([np.bincount(labels[rows], minlength=classes) for rows in self.rows[which]])
        logs = np.log(counts + 0.5)
        return torch.from_numpy(logs - logs.max(1, keepdims=True))

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
class Samples:
    """The samples of one purpose and round, drawn block by block when they are needed."""

    data: Holdings
    seed: int
    purpose: str
    round: int
    count: int | None
    """Samples per node; None for all that a node holds, which may differ from node to node."""

    @property
    def nodes(self) -> Ids:
        """[S] global ids."""
        return self.data.nodes

    def __len__(self) -> int:
        return len(self.data.nodes)

    def of(self, block: slice) -> Labelled:
        """x [b, count, ...] and y [b, count] of a block of hosted nodes."""
        if self.count is None:
            return self.data.everything(block)
        return self.data.draw(self.seed, self.purpose, self.round, block, self.count)
