"""How the training images are divided among nodes.

A partition is a function of a `Pool` giving rows per node. It depends on data, nodes and seed
alone, so all algorithms of a comparison train on the same split.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from facade.core import seeds
from facade.core.types import Ids
from facade.data.section import DataSection
from facade.errors import ExperimentError


@dataclass(frozen=True)
class Pool:
    """Rows to be divided, and among how many nodes."""

    labels: Ids
    """[N] class numbers."""
    nodes: int
    seed: int
    data: DataSection
    """The settings: per_class, alpha, shards_per_node, few_nodes, few_rows."""
    owner: Ids | None = None
    """[N] the node that a natural source gives each row to."""


Partition = Callable[[Pool], list[Ids]]


def grouped(number: Ids, count: int) -> list[Ids]:
    """The rows that have each of the numbers 0 to count - 1, ascending."""
    order = np.argsort(number, kind="stable")
    return np.split(order, np.searchsorted(number[order], np.arange(1, count)))


def held_out(strata: Ids, fraction: float, seed: int, purpose: str, least: int = 0) -> NDArray[np.bool_]:
    """[N] a random part of every stratum (class or node): the given fraction of it, rounded down,
    but at least `least` rows."""
    order = seeds.permutation(seed, purpose, len(strata))
    chosen = np.zeros(len(strata), np.bool_)
    names, number = np.unique(strata[order], return_inverse=True)
    for places in grouped(number, len(names)):
        rows = order[places]
        chosen[rows[: max(least, int(len(rows) * fraction + 1e-9))]] = True
    return chosen


def held_out_groups(
    strata: Ids, group: Ids, fraction: float, seed: int, purpose: str, least: int = 0
) -> NDArray[np.bool_]:
    """[N] as `held_out`, but of the groups (numbers [N]) rather than of the rows: all rows of one are chosen, or none.
    A group is of the stratum of its first row."""
    _, first, number = np.unique(group, return_index=True, return_inverse=True)
    return held_out(strata[first], fraction, seed, purpose, least)[number]


def stratified(pool: Pool) -> list[Ids]:
    """Every node gets the same number of images of each class; the rest is left over."""
    order = seeds.permutation(pool.seed, "partition", len(pool.labels))
    parts: list[list[Ids]] = [[] for _ in range(pool.nodes)]
    for label in np.unique(pool.labels):
        rows = order[pool.labels[order] == label]
        share = len(rows) // pool.nodes
        if not share:
            raise ExperimentError(
                f"{pool.nodes} nodes cannot share {len(rows)} images of class {label}: more nodes than"
                " images; use fewer nodes or data.partition = 'sampled'"
            )
        for node, part in enumerate(parts):
            part.append(rows[node * share : (node + 1) * share])
    return [np.sort(np.concatenate(part)) for part in parts]


def uneven(pool: Pool) -> list[Ids]:
    """As stratified, but the first few_nodes nodes keep no more than few_rows images, drawn at random.

    The rest of theirs is left over.
    """
    few, most = pool.data.few_nodes, pool.data.few_rows
    if few > pool.nodes:
        raise ExperimentError(f"data.few_nodes = {few} is more than the {pool.nodes} nodes; give at most {pool.nodes}")
    parts = stratified(pool)
    picks = seeds.picks(pool.seed, "uneven", 0, np.arange(pool.nodes), len(parts[0]), min(most, len(parts[0])))
    return [np.sort(parts[node][picks[node]]) if node < few else parts[node] for node in range(pool.nodes)]


def shuffled(pool: Pool) -> list[Ids]:
    """All images in random order, cut into equal parts; the rest is left over."""
    share = _share(pool, pool.nodes)
    order = seeds.permutation(pool.seed, "partition", len(pool.labels))
    return [np.sort(order[i * share : (i + 1) * share]) for i in range(pool.nodes)]


def _share(pool: Pool, parts: int) -> int:
    share = len(pool.labels) // parts
    if not share:
        raise ExperimentError(
            f"{len(pool.labels)} images cannot be cut into {parts} parts for {pool.nodes} nodes; use fewer nodes"
        )
    return share


def shards(pool: Pool) -> list[Ids]:
    """Images sorted by class, cut into pieces, shards_per_node of them dealt to each node.

    A node sees few classes; what does not fill a piece is left over.
    """
    each = pool.data.shards_per_node
    share = _share(pool, pool.nodes * each)
    shuffle = seeds.permutation(pool.seed, "partition", len(pool.labels))
    by_class = shuffle[np.argsort(pool.labels[shuffle], kind="stable")]
    dealt = seeds.permutation(pool.seed, "shards", pool.nodes * each).reshape(pool.nodes, each)
    return [np.sort(np.concatenate([by_class[s * share : (s + 1) * share] for s in hand])) for hand in dealt]


_ATTEMPTS = 100


def dirichlet(pool: Pool) -> list[Ids]:
    """Every class is divided by shares from Dirichlet(alpha): the smaller, the less nodes are alike.

    Nothing is left over; shares are drawn again until every node has an image.
    """
    order = seeds.permutation(pool.seed, "partition", len(pool.labels))
    for attempt in range(_ATTEMPTS):
        parts: list[list[Ids]] = [[] for _ in range(pool.nodes)]
        for label in np.unique(pool.labels):
            rows = order[pool.labels[order] == label]
            ends = np.rint(np.cumsum(_shares(pool, int(label), attempt)) * len(rows)).astype(np.int64)
            for part, piece in zip(parts, np.split(rows, ends[:-1]), strict=True):
                part.append(piece)
        rows_of = [np.sort(np.concatenate(part)) for part in parts]
        if all(len(rows) for rows in rows_of):
            return rows_of
    raise ExperimentError(
        f"data.alpha = {pool.data.alpha:g} leaves some of {pool.nodes} nodes without an image in"
        f" {_ATTEMPTS} draws; use a larger alpha or fewer nodes"
    )


def _shares(pool: Pool, label: int, attempt: int) -> NDArray[np.float64]:
    """[nodes] shares of a class that add up to 1, from Dirichlet(alpha)."""
    logs = _log_gamma_draws(pool.data.alpha, pool.seed, f"dirichlet-{label}", attempt, np.arange(pool.nodes))
    sizes = np.exp(logs - logs.max())
    return np.asarray(sizes / sizes.sum())


def _log_gamma_draws(alpha: float, seed: int, purpose: str, attempt: int, nodes: Ids) -> NDArray[np.float64]:
    """[nodes] logarithms of draws from Gamma(alpha), by Marsaglia and Tsang's rejection. Logarithms,
    because draws for a small alpha are smaller than any float; own, because a library's stream may
    change with its version."""
    tries = 24  # each is accepted with probability > 0.95, so all fail with less than 1e-31
    uniform = seeds.uniform(seed, purpose, attempt, nodes, 3 * tries + 1)
    first, second, third = (uniform[:, i * tries : (i + 1) * tries] for i in range(3))
    normal = np.sqrt(-2 * np.log(first)) * np.cos(2 * np.pi * second)
    d = alpha + 1 - 1 / 3  # Gamma(alpha + 1) first: the method needs a shape of at least 1
    cube = (1 + normal / np.sqrt(9 * d)) ** 3
    positive = np.where(cube > 0, cube, 1.0)
    accepted = (cube > 0) & (np.log(third) < 0.5 * normal**2 + d * (1 - positive + np.log(positive)))
    drawn = np.log(d * positive[np.arange(len(nodes)), accepted.argmax(1)])
    return np.asarray(drawn + np.log(uniform[:, -1]) / alpha)


def sampled(pool: Pool) -> list[Ids]:
    """Every node draws per_class images of each class with replacement: for studies of scale only.

    Nodes overlap.
    """
    everyone = np.arange(pool.nodes)
    columns = []
    for label in np.unique(pool.labels):
        rows = np.nonzero(pool.labels == label)[0]
        drawn = seeds.uniform(pool.seed, "sampled", int(label), everyone, pool.data.per_class)
        columns.append(rows[(drawn * len(rows)).astype(np.int64)])
    return list(np.concatenate(columns, axis=1))


def natural(pool: Pool) -> list[Ids]:
    """Every node keeps what the source says it holds."""
    if pool.owner is None:
        raise ExperimentError(
            f"data.partition = 'natural' needs a source that says who holds what, but '{pool.data.source}'"
            " does not; use 'stratified', or npz with train_nodes, csv with data.site, or Federation.from_nodes"
        )
    return grouped(pool.owner, pool.nodes)


PARTITIONS: dict[str, Partition] = {
    "stratified": stratified,
    "uneven": uneven,
    "shuffled": shuffled,
    "dirichlet": dirichlet,
    "shards": shards,
    "natural": natural,
    "sampled": sampled,
}
