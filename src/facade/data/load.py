"""From the [data] section of an experiment to a federation."""

from __future__ import annotations

import numpy as np
import torch

from facade import seeds
from facade.config import Data
from facade.data.federation import Federation, Holdings, Ids, Labelled
from facade.data.partition import PARTITIONS, sampled
from facade.data.skews import SKEWS, Skew
from facade.data.sources import SOURCES
from facade.names import look_up


def load(data: Data, seed: int) -> Federation:
    """The federation an experiment asks for. The split depends on data and seed alone, so every
    algorithm of a comparison gets the same one."""
    dataset = look_up("dataset", data.source, SOURCES)(data)
    skew = look_up("skew", data.skew, SKEWS)
    partition = look_up("partition", data.partition, PARTITIONS)
    cluster = np.repeat(np.arange(len(data.sizes)), data.sizes)
    train, validation = _cut(dataset.train, data.validation, seed)
    labels = train.y.numpy()
    overlapping = partition is sampled
    rows = sampled(labels, len(cluster), seed, data.per_class) if overlapping else partition(labels, len(cluster), seed)
    held = len(np.unique(np.concatenate(rows)))
    return Federation(
        training=_skewed(train, rows, cluster, skew),
        tests=_per_cluster(dataset.test, len(data.sizes), skew),
        test_of=cluster,
        classes=dataset.classes,
        mean=dataset.mean,
        std=dataset.std,
        cluster=cluster,
        validations=None if validation is None else _per_cluster(validation, len(data.sizes), skew),
        leftover=len(labels) - held,
        overlapping=overlapping,
    )


def _cut(train: Labelled, fraction: float, seed: int) -> tuple[Labelled, Labelled | None]:
    """Training data without, and validation data with, the given fraction of every class."""
    if fraction == 0:
        return train, None
    order = seeds.permutation(seed, "validation", len(train))
    held_out = torch.zeros(len(train), dtype=torch.bool)
    for label in np.unique(train.y.numpy()):
        rows = order[(train.y.numpy() == label)[order]]
        held_out[torch.from_numpy(rows[: int(len(rows) * fraction)])] = True
    return train[~held_out], train[held_out]


def _per_cluster(plain: Labelled, clusters: int, skew: Skew) -> list[Labelled]:
    """The whole set as each cluster sees it."""
    return [Labelled(skew(plain.x, c, clusters), plain.y) for c in range(clusters)]


def _skewed(train: Labelled, rows: list[Ids], cluster: Ids, skew: Skew) -> Holdings:
    """Each image once per cluster that holds it, turned into that cluster's kind; where nodes do
    not overlap, that is once in all."""
    clusters = int(cluster.max()) + 1
    parts: list[Labelled] = []
    renumbered: list[Ids] = []
    offset = 0
    for c in range(clusters):
        own = [rows[i] for i in np.nonzero(cluster == c)[0]]
        used = np.unique(np.concatenate(own))
        plain = train[torch.from_numpy(used)]
        parts.append(Labelled(skew(plain.x, c, clusters), plain.y))
        renumbered += [np.searchsorted(used, r) + offset for r in own]
        offset += len(used)
    samples = Labelled(torch.cat([p.x for p in parts]), torch.cat([p.y for p in parts]))
    return Holdings(samples, np.arange(len(rows)), renumbered)
