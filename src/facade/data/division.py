"""Which node gets which rows of a data set, and what each is tested on."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from facade.core.types import Ids
from facade.data.cluster_views import ClusterViews
from facade.data.errors import DataError
from facade.data.partition import Partition, Pool, grouped, held_out_groups
from facade.data.samples import Dataset, Labelled
from facade.errors import ExperimentError


def check_nodes(dataset: Dataset, n: int) -> None:
    """Refuse a natural source whose nodes are not those of the experiment."""
    for owner in (dataset.node, dataset.test_node):
        if owner is None or np.array_equal(nodes := np.unique(owner), np.arange(n)):
            continue
        raise DataError(
            f"the data name {len(nodes)} nodes, {nodes[0]} to {nodes[-1]}, but data.clusters asks for 0 to {n - 1};"
            " change data.clusters, and number the nodes 0, 1, 2, ... with at least one row each"
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


def kept_back_rows(dataset: Dataset, fraction: float, seed: int) -> NDArray[np.bool_]:
    """[N] the training rows kept for validation: a fraction of every class, or of every node where
    nodes bring their own data (then at least one, if they also bring their own tests); of groups together. A source
    may say itself which rows are kept."""
    labels = dataset.train.y.numpy()
    if dataset.kept_back is not None:
        if fraction:
            raise ExperimentError(
                f"data.validation = {fraction:g}, but the data say which rows are for validation; leave it out"
            )
        return dataset.kept_back
    if not fraction:
        return np.zeros(len(labels), np.bool_)
    strata = labels if dataset.node is None else dataset.node
    group = np.arange(len(labels)) if dataset.group is None else dataset.group
    return held_out_groups(strata, group, fraction, seed, "validation", least=int(dataset.test_node is not None))


@dataclass(frozen=True)
class Division:
    """Who gets which rows of a data set."""

    dataset: Dataset
    views: ClusterViews
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
        if self.views.classes is None:
            return [(everyone, np.nonzero(~self.kept_back)[0])]
        has = np.zeros((self.views.clusters, len(whole.labels)), np.bool_)
        for c, row in enumerate(has):
            row[self.views.select(whole.labels, c)] = True
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
            rows = parts[number][self.views.select(labels[parts[number]], c)]
            if not len(rows):
                kind, remedy = ("test", "give it one") if only is None else ("validation", "change data.validation")
                raise DataError(f"{kind} set {number} is empty but every node is to be tested on a sample; {remedy}")
            sets.append(self.views.seen(split, rows, c))
        return sets
