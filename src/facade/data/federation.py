"""Data of a whole federation: images held once, rows per node, test sets per cluster."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from facade.core import seeds

if TYPE_CHECKING:
    from facade.data.arrays import Array

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
    """One source as it was loaded, before it is divided among nodes. Whoever divides it owns it and
    may overwrite the images."""

    train: Labelled
    test: Labelled
    classes: list[str]
    mean: list[float] = field(default_factory=lambda: [0.0])
    std: list[float] = field(default_factory=lambda: [1.0])
    """Normalisation per channel, applied to [0, 1] values when a batch is used."""
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

    def everything(self, which: slice) -> Labelled:
        """x [1, rows, ...] and y [1, rows] of one node; where it holds a whole stretch, in the same memory."""
        (rows,) = self.rows[which]
        if len(rows) and np.array_equal(rows, np.arange(rows[0], rows[0] + len(rows))):
            held = self.samples[int(rows[0]) : int(rows[-1]) + 1]
            return Labelled(held.x.unsqueeze(0), held.y.unsqueeze(0))
        return self.samples[torch.from_numpy(rows).unsqueeze(0)]

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
    notes: list[str] = field(default_factory=list)
    """What a reader should know of how the data were read, one sentence each."""

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.shape))
        return f"<Federation of {self.n} nodes: {len(self.classes)} classes, inputs of {shape}>"

    @property
    def n(self) -> int:
        """Number of nodes."""
        return len(self.training.nodes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return tuple(self.training.samples.x.shape[1:])

    @property
    def section(self) -> dict[str, str]:
        """The [data] section for an experiment that is run with this very object:
        `run(Experiment.of({"data": federation.section, ...}), federation=federation)`."""
        sizes = [self.n] if self.cluster is None else np.bincount(self.cluster).tolist()
        return {"source": "given", "clusters": ":".join(map(str, sizes)), "skew": "none"}

    def tested_on(self, count: int) -> Federation:
        """The same with at most `count` samples in every test and validation set, evenly spaced."""

        def some(part: Labelled) -> Labelled:
            if len(part) <= count:
                return part
            return part[torch.linspace(0, len(part) - 1, count).round().long()]

        validations = None if self.validations is None else [some(part) for part in self.validations]
        return dataclasses.replace(self, tests=[some(part) for part in self.tests], validations=validations)

    @classmethod
    def from_arrays(
        cls,
        x: Array,
        y: Array,
        x_test: Array | None = None,
        y_test: Array | None = None,
        *,
        clusters: str = "1",
        seed: int = 1,
        classes: Sequence[str] | None = None,
        **settings: Any,
    ) -> Federation:
        """A federation made of your arrays: uint8 images [N, H, W], [N, H, W, C] or [N, C, H, W], or
        float rows [N, values], and class numbers [N]. Without test arrays, data.test_fraction of
        every class is held out. `settings` are further fields of [data]: skew, partition, ...
        """
        from facade.data import arrays, load
        from facade.experiment.config import Experiment

        section = {"source": "given", "clusters": clusters, "skew": "none"} | settings
        data = Experiment.of({"data": section}).data
        dataset = arrays.dataset(x, y, x_test, y_test, classes, data.test_fraction)
        return load.federate(dataset, data, seed, load.clusters_of(data))

    @classmethod
    def from_nodes(
        cls,
        nodes: Sequence[tuple[Array, ...]],
        *,
        test: tuple[Array, Array] | None = None,
        clusters: Sequence[int] | None = None,
        classes: Sequence[str] | None = None,
        seed: int = 1,
        **settings: Any,
    ) -> Federation:
        """A natural federation: one (x, y) or (x, y, x_test, y_test) per node, of any size, arrays as
        in `from_arrays`. Give either a test set with every node or one `test` for all of them.
        `clusters` is the ground truth per node, where there is one; metrics alone use it.
        """
        from facade.data import arrays, load
        from facade.experiment.config import Experiment

        dataset = arrays.natural_dataset(nodes, test, classes)
        cluster = arrays.cluster_numbers(clusters, len(nodes))
        fixed = {"source": "given", "clusters": str(len(nodes)), "partition": "natural"}
        data = Experiment.of({"data": {"skew": "none"} | settings | fixed}).data
        made = load.federate(dataset, data, seed, cluster)
        return made if clusters is not None else dataclasses.replace(made, cluster=None)
