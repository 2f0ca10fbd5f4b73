"""Who hears whom: a graph is a specified function of (number of members, seed, round).

Every site computes it alike, with no coordinator and no library's generator in between: all draws
come from `Stream`, SHA-256 in counter mode, specified to the byte in docs/topology.md together with
test vectors. Members are numbered 0..n-1 in ascending order of their ids.
"""

from __future__ import annotations

import functools
import hashlib
import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from facade.core.types import Ids
from facade.errors import ExperimentError

Codes = NDArray[np.int64]
"""Pairs of nodes as one number each: the smaller node times n plus the larger one."""

_BLOCKS_AHEAD = 16
"""Blocks of a stream that are computed together where words are taken one by one."""


class Stream:
    """Unsigned 64-bit words: block c is SHA-256 of "facade/topology/1" followed by seed, round,
    attempt and c, each as 8 bytes big-endian; a block gives four big-endian words."""

    def __init__(self, seed: int, round: int, attempt: int = 0) -> None:
        self._prefix = b"facade/topology/1" + b"".join(part.to_bytes(8, "big") for part in (seed, round, attempt))
        self._block = 0
        self._left: deque[int] = deque()

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next `count` words as an array."""
        left = np.array([self._left.popleft() for _ in range(min(count, len(self._left)))], np.uint64)
        fresh = self._blocks(-(-(count - len(left)) // 4))
        used = count - len(left)
        self._left.extend(fresh[used:].tolist())
        return np.concatenate([left, fresh[:used]])

    def _blocks(self, count: int) -> NDArray[np.uint64]:
        """The words of the next blocks."""
        numbers = range(self._block, self._block + count)
        self._block += count
        raw = b"".join([hashlib.sha256(self._prefix + c.to_bytes(8, "big")).digest() for c in numbers])
        return np.frombuffer(raw, ">u8").astype(np.uint64)

    def below(self, bound: int) -> int:
        """The next uniform integer in [0, bound): words at or above the largest multiple of
        `bound` are passed over."""
        limit = (1 << 64) // bound * bound
        while True:
            if not self._left:
                self._left.extend(self._blocks(_BLOCKS_AHEAD).tolist())
            word = self._left.popleft()
            if word < limit:
                return word % bound

    def shuffle(self, size: int) -> Ids:
        """0..size-1 in the order of `size` fresh words, equal words by the lower number."""
        words = self.words(size)
        order = np.argsort(words)
        if (np.diff(words[order]) == 0).any():  # a stable sort takes five times as long
            order = np.argsort(words, kind="stable")
        return order.astype(np.int64)


@dataclass(frozen=True)
class Graph:
    """Directed edges sorted by (receiver, sender), without loops. `everyone` marks the complete
    graph, whose n(n-1) edges are never written down."""

    n: int
    receiver: Ids
    sender: Ids
    everyone: bool = False

    @functools.cached_property
    def degree(self) -> Ids:
        """[n] number of peers each node hears."""
        if self.everyone:
            return np.full(self.n, self.n - 1, np.int64)
        return np.bincount(self.receiver, minlength=self.n).astype(np.int64)

    def into(self, nodes: Ids) -> tuple[Ids, Ids]:
        """(row in `nodes`, sender) of the edges that end in `nodes` (ascending ids)."""
        if len(nodes) == self.n:
            return self.receiver, self.sender
        keep = np.isin(self.receiver, nodes)
        return np.searchsorted(nodes, self.receiver[keep]), self.sender[keep]


def undirected(n: int, pairs: Iterable[tuple[int, int]]) -> Graph:
    """The graph in which both ends of every pair hear each other."""
    ends = np.array(list(pairs), dtype=np.int64).reshape(-1, 2)
    return _linked(n, ends[:, 0], ends[:, 1])


def _linked(n: int, first: Ids, second: Ids) -> Graph:
    """The graph in which first[e] and second[e] hear each other, all pairs different."""
    edges = np.concatenate([first * n + second, second * n + first])
    edges.sort()
    return Graph(n, edges // n, edges % n)


def connected(graph: Graph) -> bool:
    """Whether every node reaches every other (edges taken in both directions)."""
    if graph.everyone:
        return True
    label = np.arange(graph.n)
    while True:
        lower = label.copy()
        np.minimum.at(lower, graph.receiver, label[graph.sender])
        np.minimum.at(lower, graph.sender, label[graph.receiver])
        lower = lower[lower]
        if np.array_equal(lower, label):
            return bool((label == 0).all())
        label = lower


def diameter(graph: Graph) -> int:
    """The longest of all shortest ways between two nodes that reach each other."""
    if graph.everyone:
        return 1
    if not len(graph.receiver):
        return 0
    first = np.flatnonzero(np.diff(graph.receiver, prepend=-1))  # of every receiver's edges
    reached, steps = np.packbits(np.eye(graph.n, dtype=bool), axis=1), 0  # a bit for every node that is reached
    while True:
        further = reached.copy()
        further[graph.receiver[first]] |= np.bitwise_or.reduceat(reached[graph.sender], first, axis=0)
        if np.array_equal(further, reached):
            return steps
        reached, steps = further, steps + 1


@dataclass(frozen=True)
class Topology(ABC):
    """A rule for drawing one graph per (seed, round)."""

    directed: ClassVar[bool] = False
    """Whether hearing need not be mutual."""
    fixed: ClassVar[bool] = False
    """Whether there is but one graph, the same in all rounds."""

    def check(self, n: int) -> None:
        """Raise ExperimentError if there is no such graph on n nodes."""
        if n < 2:
            raise ExperimentError(f"a network needs at least 2 nodes, {n} given; change data.clusters")

    @abstractmethod
    def draw(self, n: int, seed: int, round: int) -> Graph: ...

    def spread(self, n: int, seed: int, fresh: bool) -> int:
        """Rounds in which a rumour reaches everyone: on a fixed graph its diameter, on fresh ones
        log2 n, and two more in either case for the few messages that are lost."""
        return (math.ceil(math.log2(n)) if fresh else diameter(self.draw(n, seed, 0))) + 2


def check_degree(degree: int, n: int) -> None:
    """The degrees for which a connected graph exists."""
    if n < 3:
        raise ExperimentError(f"topology.degree needs at least 3 nodes, {n} given; use topology.name = 'complete'")
    if not 2 <= degree <= n - 1:
        raise ExperimentError(f"topology.degree = {degree} is not possible with {n} nodes; give 2 to {n - 1}")


@dataclass(frozen=True)
class Regular(Topology):
    """A connected random graph in which every node has exactly `degree` neighbours."""

    degree: int = 4

    def check(self, n: int) -> None:
        super().check(n)
        check_degree(self.degree, n)
        if n * self.degree % 2:
            raise ExperimentError(
                f"no graph gives each of {n} nodes exactly {self.degree} neighbours"
                f" ({n} x {self.degree} is odd); change topology.degree or the number of nodes"
            )

    def draw(self, n: int, seed: int, round: int) -> Graph:
        if self.degree == n - 1:
            return COMPLETE.draw(n, seed, round)
        if self.degree == 2 and n > 4:  # the connected 2-regular graphs are the rings
            return RING.draw(n, seed, round)
        missing = n - 1 - self.degree
        attempt = 0
        while True:
            stream = Stream(seed, round, attempt)
            pairs = _pairing(n, min(self.degree, missing), stream)
            if pairs is not None:
                graph = _linked(n, pairs // n, pairs % n)
                graph = graph if self.degree <= missing else _complement(graph)
                if connected(graph):
                    return graph
            attempt += 1


def _pairing(n: int, degree: int, stream: Stream) -> Codes | None:
    """`degree` stubs per node, shuffled and paired in order; loops and repeated edges are then
    switched away. None where 100 switches per edge were not enough."""
    ends = (stream.shuffle(n * degree) // degree).reshape(-1, 2)
    codes = ends.min(1) * n + ends.max(1)
    is_good = np.zeros(len(codes), np.bool_)
    is_good[np.unique(codes, return_index=True)[1]] = True
    is_good &= ends[:, 0] != ends[:, 1]
    bad = np.flatnonzero(~is_good).tolist()
    edges, good, seen = codes.tolist(), is_good.tolist(), set(codes[is_good].tolist())
    patience = 100 * len(edges)
    while bad:
        patience -= 1
        if patience < 0:
            return None
        index, other = bad[-1], stream.below(len(edges))
        flip = stream.below(2)
        if not good[other]:
            continue
        (a, b), (c, d) = divmod(edges[index], n), divmod(edges[other], n)
        c, d = (d, c) if flip else (c, d)
        first, second = min(a, c) * n + max(a, c), min(b, d) * n + max(b, d)
        if a == c or b == d or first == second or first in seen or second in seen:
            continue
        seen.remove(edges[other])
        seen.update((first, second))
        edges[index], edges[other] = first, second
        good[bad.pop()] = True
    return np.array(edges, np.int64)


def _complement(graph: Graph) -> Graph:
    adjacent = np.eye(graph.n, dtype=bool)
    adjacent[graph.receiver, graph.sender] = True
    receiver, sender = np.nonzero(~adjacent)
    return Graph(graph.n, receiver, sender)


@dataclass(frozen=True)
class Ring(Topology):
    """One ring through all nodes, in shuffled order."""

    def draw(self, n: int, seed: int, round: int) -> Graph:
        order = Stream(seed, round).shuffle(n)
        pairs = {(min(a, b), max(a, b)) for a, b in zip(order.tolist(), np.roll(order, -1).tolist(), strict=True)}
        return undirected(n, pairs)


@dataclass(frozen=True)
class Complete(Topology):
    """Everybody hears everybody."""

    def draw(self, n: int, seed: int, round: int) -> Graph:
        none = np.zeros(0, np.int64)
        return Graph(n, none, none, everyone=True)


@dataclass(frozen=True)
class Star(Topology):
    """One random node in the centre, all others linked to it alone."""

    def spread(self, n: int, seed: int, fresh: bool) -> int:
        """As in Topology; but on fresh stars it takes up to n - 1 rounds: in each, all hear a rumour if the centre
        knew it before, or else the centre alone does."""
        return n - 1 + 2 if fresh else super().spread(n, seed, fresh)

    def draw(self, n: int, seed: int, round: int) -> Graph:
        centre = Stream(seed, round).below(n)
        return undirected(n, {(min(centre, i), max(centre, i)) for i in range(n) if i != centre})


@dataclass(frozen=True)
class ErdosRenyi(Topology):
    """Every pair is linked with probability degree / (n - 1); a node may end up alone."""

    degree: int = 4

    def check(self, n: int) -> None:
        super().check(n)
        check_degree(self.degree, n)

    def draw(self, n: int, seed: int, round: int) -> Graph:
        first, second = np.triu_indices(n, 1)
        limit = np.uint64(min((self.degree << 64) // (n - 1), (1 << 64) - 1))
        linked = Stream(seed, round).words(len(first)) < limit
        return _linked(n, first[linked], second[linked])


@dataclass(frozen=True)
class KOut(Topology):
    """Every node hears `degree` others drawn at random; hearing is not mutual."""

    degree: int = 4
    directed = True

    def check(self, n: int) -> None:
        super().check(n)
        check_degree(self.degree, n)

    def draw(self, n: int, seed: int, round: int) -> Graph:
        stream = Stream(seed, round)
        receiver, sender = [], []
        for node in range(n):
            heard: set[int] = set()
            while len(heard) < self.degree:
                other = stream.below(n - 1)
                heard.add(other + (other >= node))
            receiver += [node] * self.degree
            sender += sorted(heard)
        return Graph(n, np.array(receiver, np.int64), np.array(sender, np.int64))


@dataclass(frozen=True)
class GivenEdges(Topology):
    """The undirected `edges` given, such as "0-1 1-2"; topology.name = "file" reads them from topology.file."""

    fixed = True
    edges: str = ""

    def check(self, n: int) -> None:
        super().check(n)
        if not self.edges:
            raise ExperimentError("topology.name = 'edges' needs topology.edges, such as '0-1 1-2'")
        for edge in self.edges.split():
            ends = {int(end) for end in edge.split("-") if end.isdecimal()}
            if edge.count("-") != 1 or len(ends) != 2 or max(ends) >= n:
                raise ExperimentError(
                    f"topology.edges: '{edge}' is not an edge; expected two different node numbers from 0 to {n - 1},"
                    " such as '0-1'"
                )

    def draw(self, n: int, seed: int, round: int) -> Graph:
        ends = (sorted(int(end) for end in edge.split("-")) for edge in self.edges.split())
        return undirected(n, {(a, b) for a, b in ends})


COMPLETE, RING = Complete(), Ring()

TOPOLOGIES: dict[str, type[Topology]] = {
    "regular": Regular,
    "ring": Ring,
    "complete": Complete,
    "star": Star,
    "erdos-renyi": ErdosRenyi,
    "k-out": KOut,
    "edges": GivenEdges,
}
