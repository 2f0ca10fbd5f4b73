"""Data of a whole federation: images held once, rows per node, test sets per cluster."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from facade.core.types import Ids
from facade.data import arrays
from facade.data.arrays import Array
from facade.data.cluster_views import ClusterViews
from facade.data.columns import Column
from facade.data.division import Division, check_nodes, kept_back_rows
from facade.data.errors import DataError
from facade.data.named import named
from facade.data.partition import PARTITIONS, Pool, natural
from facade.data.samples import Dataset, Holdings, Labelled, Scale
from facade.data.scales import scaled
from facade.data.section import DataSection, data_section
from facade.data.site_names import checked_names


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
    """How values become inputs, with `scale`: see `facade.data.scales`."""
    cluster: Ids | None = None
    """[n] ground-truth cluster, where it is known. Only metrics look at it."""
    validations: list[Labelled] | None = None
    """Like `tests`, cut from the training data; numbered by `test_of` too."""
    triggered: list[Labelled] | None = None
    """Like `tests`, with the trigger of a backdoor and without the class that it stands for."""
    leftover: int = 0
    """Training images that no node holds."""
    partition: str = "stratified"
    """How samples came to their nodes: data.partition."""
    overlapping: bool = False
    """Whether nodes may hold the same image (partition "sampled")."""
    own_tests: bool = False
    """Whether nodes are tested on labels as they hold them: on samples of their own, or on their cluster's classes."""
    notes: list[str] = field(default_factory=list)
    """What a reader should know of how the data were read, one sentence each."""
    sites: list[str] | None = None
    """Names of the nodes of a natural federation; None: they have numbers only."""
    scale: Scale = "auto"
    """What data.scale comes to."""
    columns: list[Column] = field(default_factory=list)
    """The columns of a table of which rows were made; none where they were made of something else."""
    standardised: bool = False
    """Whether rows were standardised by the training rows of the site that they are of."""

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
        return {"source": "given", "clusters": ":".join(map(str, sizes)), "skew": "none", "partition": self.partition}

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
        """A federation made of your arrays: images [N, H, W], [N, H, W, C] or [N, C, H, W], volumes
        [N, C, D, H, W] or rows [N, values] of any numeric type, and class numbers [N]; rows of tokens with
        scale="tokens". Without test arrays, data.test_fraction of every class is held out. `settings` are
        further fields of [data]: skew, partition, scale, ...
        """
        section = {"source": "given", "clusters": clusters, "skew": "none"} | settings
        data = data_section(section)
        dataset = arrays.dataset(x, y, x_test, y_test, classes, data)
        return federate(scaled(dataset, data.scale), data, seed, clusters_of(data))

    @classmethod
    def from_nodes(
        cls,
        nodes: Sequence[tuple[Array, ...]],
        *,
        test: tuple[Array, Array] | None = None,
        clusters: Sequence[int] | None = None,
        names: Sequence[str] | None = None,
        classes: Sequence[str] | None = None,
        seed: int = 1,
        **settings: Any,
    ) -> Federation:
        """A natural federation: one (x, y) or (x, y, x_test, y_test) per node, of any size, arrays as
        in `from_arrays`. Give either a test set with every node or one `test` for all of them.
        `clusters` is the ground truth per node, where there is one; metrics alone use it.
        `names` are those of the nodes, which tables and reports then use.
        """
        fixed = {"source": "given", "clusters": str(len(nodes) or 1), "partition": "natural"}
        data = data_section({"skew": "none"} | settings | fixed)
        dataset = arrays.natural_dataset(nodes, test, classes, data.scale == "tokens")
        if names is not None:
            dataset = dataclasses.replace(dataset, sites=checked_names(names, len(nodes)))
        cluster = arrays.cluster_numbers(clusters, len(nodes))
        federation = federate(scaled(dataset, data.scale), data, seed, cluster)
        return federation if clusters is not None else dataclasses.replace(federation, cluster=None)


def clusters_of(data: DataSection) -> Ids:
    """[n] cluster of every node as data.clusters lists them: the first ones are cluster 0."""
    return np.repeat(np.arange(len(data.sizes)), data.sizes)


def federate(dataset: Dataset, data: DataSection, seed: int, cluster: Ids) -> Federation:
    """Divide a data set among nodes of the given clusters [n]. Owns the data set: training images
    are changed in place, so that they are held once."""
    partition = named("partition", data.partition, PARTITIONS)
    if partition is natural:
        check_nodes(dataset, len(cluster))
    else:  # the source's own division is not asked for
        dataset = dataclasses.replace(dataset, node=None, test_node=None, sites=None)
    views = ClusterViews(dataset, data, int(cluster.max()) + 1)
    kept_back = kept_back_rows(dataset, data.validation, seed)
    division = Division(dataset, views, cluster, kept_back)
    held = division.held(partition, Pool(dataset.train.y.numpy(), len(cluster), seed, data, dataset.node))
    present = np.unique(dataset.train.y.numpy())
    if len(present) == 1:
        raise DataError(
            f"all samples are of class '{dataset.classes[present[0]]}'; there is nothing to learn: bring a second class"
        )
    distinct = len(np.unique(np.concatenate(held)))
    overlapping = distinct < sum(len(rows) for rows in held)
    return Federation(
        tests=division.tests(),
        validations=division.validations() if kept_back.any() else None,
        training=views.copied(held, cluster) if overlapping else views.in_place(held, cluster),
        test_of=division.test_of,
        classes=dataset.classes,
        mean=dataset.mean,
        std=dataset.std,
        cluster=cluster,
        leftover=int((~kept_back).sum()) - distinct,
        overlapping=overlapping,
        own_tests=dataset.test_node is not None or views.classes is not None,
        notes=dataset.notes,
        sites=dataset.sites,
        scale=dataset.scale,
        columns=dataset.columns,
        standardised=dataset.standardised,
        partition=data.partition,
    )
