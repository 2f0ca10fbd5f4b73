"""How the training images are divided among nodes.

A partition is a function (labels [N], number of nodes, seed) -> rows per node. It depends on data,
nodes and seed alone, so all algorithms of a comparison train on the same split.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from facade import seeds
from facade.errors import ExperimentError

Ids = NDArray[np.int64]
Partition = Callable[[Ids, int, int], list[Ids]]


def stratified(labels: Ids, nodes: int, seed: int) -> list[Ids]:
    """Every node gets the same number of images of each class; the rest is left over."""
    order = seeds.permutation(seed, "partition", len(labels))
    parts: list[list[Ids]] = [[] for _ in range(nodes)]
    for label in np.unique(labels):
        rows = order[labels[order] == label]
        share = len(rows) // nodes
        if not share:
            raise ExperimentError(
                f"{nodes} nodes cannot share {len(rows)} images of class {label}: more nodes than"
                " images; use fewer nodes or data.partition = 'sampled'"
            )
        for node, part in enumerate(parts):
            part.append(rows[node * share : (node + 1) * share])
    return [np.sort(np.concatenate(part)) for part in parts]


def shuffled(labels: Ids, nodes: int, seed: int) -> list[Ids]:
    """All images in random order, cut into equal parts; the rest is left over."""
    share = len(labels) // nodes
    if not share:
        raise ExperimentError(f"{nodes} nodes cannot share {len(labels)} images; use fewer nodes")
    order = seeds.permutation(seed, "partition", len(labels))
    return [np.sort(order[i * share : (i + 1) * share]) for i in range(nodes)]


def sampled(labels: Ids, nodes: int, seed: int, per_class: int = 4) -> list[Ids]:
    """Every node draws `per_class` images of each class with replacement: nodes overlap, so this
    is for studies of scale only."""
    everyone = np.arange(nodes)
    columns = []
    for label in np.unique(labels):
        rows = np.nonzero(labels == label)[0]
        drawn = seeds.uniform(seed, "sampled", int(label), everyone, per_class)
        columns.append(rows[(drawn * len(rows)).astype(np.int64)])
    return list(np.concatenate(columns, axis=1))


PARTITIONS: dict[str, Partition] = {"stratified": stratified, "shuffled": shuffled, "sampled": sampled}
