"""From the [data] section of an experiment to a federation."""

from __future__ import annotations

import dataclasses
import warnings
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from facade.core.names import is_foreign
from facade.data.arrays import same_kind
from facade.data.cluster_views import Looks
from facade.data.errors import DataError
from facade.data.federation import Dataset, Federation, Ids, Labelled
from facade.data.named import named
from facade.data.partition import PARTITIONS, Partition, Pool, grouped, held_out, natural
from facade.data.sources import SOURCES
from facade.errors import ExperimentError
from facade.experiment.sections import Data


def load(data: Data, seed: int) -> Federation:
    """The federation an experiment asks for. The split depends on data and seed alone, so every
    algorithm of a comparison gets the same one."""
    dataset = read(data)
    if data.partition == "natural" and len(data.sizes) > 1:
        _mind_clusters(dataset, data)
    return federate(dataset, data, seed, clusters_of(data))


def read(data: Data) -> Dataset:
    """The data set that a section names, undivided. Whoever calls owns it."""
    dataset = named("dataset", data.source, SOURCES)(data)
    if not isinstance(dataset, Dataset):
        raise ExperimentError(f"dataset '{data.source}' returned {type(dataset).__name__}; expected a facade Dataset")
    if is_foreign(data.source):  # a user's function, which may keep what it returned
        _check_samples(data.source, dataset)
        dataset = dataclasses.replace(dataset, train=Labelled(dataset.train.x.clone(), dataset.train.y))
    return dataset


def _check_samples(source: str, dataset: Dataset) -> None:
    """Refuse samples of a user's own source that training would stumble over."""
    classes = len(dataset.classes)
    for what, part in (("training", dataset.train), ("test", dataset.test)):
        x, y = part.x, part.y
        if not isinstance(x, torch.Tensor) or not isinstance(y, torch.Tensor):
            raise DataError(
                f"dataset '{source}': {what} samples are {type(x).__name__} and {type(y).__name__}; expected torch"
                " tensors, such as torch.from_numpy(x)"
            )
        if y.dtype != torch.int64 or y.shape != (len(x),) or not len(y):
            raise DataError(
                f"dataset '{source}': {what} labels of type {y.dtype} and shape {list(y.shape)} for {len(x)} inputs;"
                " expected int64, one per input, at least one"
            )
        if not 0 <= int(y.min()) <= int(y.max()) < classes:
            raise DataError(
                f"dataset '{source}': {what} labels are {int(y.min())} to {int(y.max())}, but there are {classes}"
                f" classes; expected 0 to {classes - 1}"
            )
    same_kind(dataset.train, dataset.test, f"dataset '{source}', test")


def clusters_of(data: Data) -> Ids:
    """[n] cluster of every node as data.clusters lists them: the first ones are cluster 0."""
    return np.repeat(np.arange(len(data.sizes)), data.sizes)


def federate(dataset: Dataset, data: Data, seed: int, cluster: Ids) -> Federation:
    """Divide a data set among nodes of the given clusters [n]. Owns the data set: training images
    are changed in place, so that they are held once."""
    partition = named("partition", data.partition, PARTITIONS)
    if partition is natural:
        _check_nodes(dataset, len(cluster))
    else:  # the source's own division is not asked for
        dataset = dataclasses.replace(dataset, node=None, test_node=None)
    looks = Looks(dataset, data, int(cluster.max()) + 1)
    kept_back = _kept_back(dataset, data.validation, seed)
    division = _Division(dataset, looks, cluster, kept_back)
    held = division.held(partition, Pool(dataset.train.y.numpy(), len(cluster), seed, data, dataset.node))
    distinct = len(np.unique(np.concatenate(held)))
    overlapping = distinct < sum(len(rows) for rows in held)
    return Federation(
        tests=division.tests(),
        validations=division.validations() if data.validation else None,
        training=looks.copied(held, cluster) if overlapping else looks.in_place(held, cluster),
        test_of=division.test_of,
        classes=dataset.classes,
        mean=dataset.mean,
        std=dataset.std,
        cluster=cluster,
        leftover=int((~kept_back).sum()) - distinct,
        overlapping=overlapping,
        notes=dataset.notes,
    )


def _check_nodes(dataset: Dataset, n: int) -> None:
    """Refuse a natural source whose nodes are not those of the experiment."""
    for owner in (dataset.node, dataset.test_node):
        if owner is None or np.array_equal(found := np.unique(owner), np.arange(n)):
            continue
        raise DataError(
            f"the data name {len(found)} nodes, {found[0]} to {found[-1]}, but data.clusters asks for 0 to {n - 1};"
            " change data.clusters, and number the nodes 0, 1, 2, ... with at least one row each"
        )


def _mind_clusters(dataset: Dataset, data: Data) -> None:
    """Warn where clusters that differ by nature would be made to look alike, or still more different."""
    if data.skew == "none" and dataset.test_node is None:
        warnings.warn(
            "all clusters are tested on the same samples, so a model that serves one of them badly may not show;"
            " name the node of every test sample (npz: nodes_test)",
            stacklevel=3,
        )
    if data.skew != "none":
        warnings.warn(
            f"data.skew = '{data.skew}' changes the samples of clusters that data.partition = 'natural' brings;"
            " set data.skew = 'none' to leave them as they are",
            stacklevel=3,
        )


def _check_parts(pool: Pool, parts: list[Ids]) -> None:
    """Refuse what a partition must not return."""
    name, count = f"partition '{pool.data.partition}'", len(pool.labels)
    if len(parts) != pool.nodes:
        raise ExperimentError(f"{name} returned {len(parts)} parts; expected one for each of {pool.nodes} nodes")
    for part in parts:
        if len(part) and not 0 <= np.min(part) <= np.max(part) < count:
            raise ExperimentError(
                f"{name} gave a node the rows {np.min(part)} to {np.max(part)}; expected row numbers of the pool,"
                f" from 0 to {count - 1}"
            )


def _kept_back(dataset: Dataset, fraction: float, seed: int) -> NDArray[np.bool_]:
    """[N] the training rows kept for validation: a fraction of every class, or of every node where
    nodes bring their own data (then at least one, if they also bring their own tests)."""
    labels = dataset.train.y.numpy()
    if not fraction:
        return np.zeros(len(labels), np.bool_)
    strata = labels if dataset.node is None else dataset.node
    return held_out(strata, fraction, seed, "validation", least=int(dataset.test_node is not None))


@dataclass(frozen=True)
class _Division:
    """Who gets which rows of a data set."""

    dataset: Dataset
    looks: Looks
    cluster: Ids
    """[n] of every node."""
    kept_back: NDArray[np.bool_]
    """[N] training rows for validation."""

    @property
    def test_of(self) -> Ids:
        """[n] number of each node's test set: its own where the source brings one, else its cluster's."""
        return self.cluster if self.dataset.test_node is None else np.arange(len(self.cluster))

    def held(self, partition: Partition, whole: Pool) -> list[Ids]:
        """Training rows per node. Where clusters have different classes, each cluster's images are
        divided among its own nodes."""
        held: list[Ids] = [np.zeros(0, np.int64)] * len(self.cluster)
        for nodes, rows in self._pools(whole):
            if not len(rows):
                raise DataError(
                    f"no training sample has a class of nodes {nodes[0]} to {nodes[-1]}; change data.groups, or bring"
                    " samples of these classes"
                )
            owner = None if whole.owner is None else whole.owner[rows]
            pool = dataclasses.replace(whole, labels=whole.labels[rows], nodes=len(nodes), owner=owner)
            parts = partition(pool)
            _check_parts(pool, parts)
            for node, part in zip(nodes, parts, strict=True):
                held[node] = rows[part]
        for node, part in enumerate(held):
            if not len(part):
                raise DataError(
                    f"node {node} has no training sample; use fewer nodes, another data.partition,"
                    " or a smaller data.validation"
                )
        return held

    def _pools(self, whole: Pool) -> list[tuple[Ids, Ids]]:
        """(nodes, rows) pairs to be divided on their own."""
        everyone = np.arange(len(self.cluster))
        if self.looks.classes is None:
            return [(everyone, np.nonzero(~self.kept_back)[0])]
        has = np.zeros((self.looks.clusters, len(whole.labels)), np.bool_)
        for c, row in enumerate(has):
            row[self.looks.select(whole.labels, c)] = True
        has &= ~self.kept_back
        if whole.owner is not None:
            own = has[self.cluster[whole.owner], np.arange(len(whole.labels))]
            return [(everyone, np.nonzero(own)[0])]
        return [(np.nonzero(self.cluster == c)[0], np.nonzero(row)[0]) for c, row in enumerate(has)]

    def tests(self) -> list[Labelled]:
        """The test sets, numbered as `test_of` says: the test split (a node's own part of it) as the
        cluster sees it."""
        return self._sets("test", self.dataset.test.y.numpy(), self.dataset.test_node)

    def validations(self) -> list[Labelled]:
        """The same of the rows kept back."""
        return self._sets("train", self.dataset.train.y.numpy(), self.dataset.node, self.kept_back)

    def _sets(
        self, split: str, labels: Ids, owner: Ids | None, only: NDArray[np.bool_] | None = None
    ) -> list[Labelled]:
        sets = []
        everything = np.arange(len(labels)) if only is None else np.nonzero(only)[0]
        numbers, first = np.unique(self.test_of, return_index=True)
        parts = [everything] * len(numbers)
        if owner is not None:
            parts = [everything[own] for own in grouped(self.test_of[owner[everything]], len(numbers))]
        for number, c in enumerate(self.cluster[first].tolist()):
            rows = parts[number][self.looks.select(labels[parts[number]], c)]
            if not len(rows):
                kind, remedy = ("test", "give it one") if only is None else ("validation", "change data.validation")
                raise DataError(f"{kind} set {number} is empty but every node is to be tested on a sample; {remedy}")
            sets.append(self.looks.seen(split, rows, c))
        return sets
