"""What Ray costs on one machine, and what crosses from shard to shard."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from facade.benchmarks.efficiency import NODES
from facade.benchmarks.rounds import CIFAR, Rounds, federation, pairwise, prepared
from facade.core import tree
from facade.learning.machine import cores
from facade.runtimes.ray.cluster import Cluster
from facade.runtimes.ray.connection import connected
from facade.runtimes.ray.worker import RoundReport
from facade.runtimes.ray.workers import Workers


class ClusterRounds:
    """A run on the cluster that can be advanced a few rounds at a time."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self.reports: list[RoundReport] = workers.begin(None)

    def advance(self, rounds: int) -> None:
        """Play some rounds."""
        for _ in range(rounds):
            self.reports = self._workers.exchange(self.reports)

    def fetched(self) -> int:
        """Messages that the next exchange takes from one shard to another."""
        return sum(
            len(nodes)
            for shard, report in enumerate(self.reports)
            if report.wanted is not None
            for other, nodes in enumerate(report.wanted)
            if other != shard and nodes is not None
        )


def run(quick: bool) -> dict[str, Any]:
    """FACADE rounds on CIFAR-10 shapes: the local runtime against Ray with 1, 2 and 4 shards."""
    data = federation(CIFAR, NODES, 400)
    algorithm = {"name": "facade", "heads": 2}
    local = Rounds(prepared(data, "gn-lenet", algorithm))
    local.advance(1)
    pairs, many = (2, 1) if quick else (8, 2)

    @contextlib.contextmanager
    def on_ray(shards: int, threads: int) -> Iterator[ClusterRounds]:
        setup = prepared(data, "gn-lenet", algorithm, f"runtime.threads={threads}")
        with Cluster(setup, shards, cpus=0.1).workers() as workers:
            game = ClusterRounds(workers)
            game.advance(1)
            yield game

    ratios: dict[str, Any] = {}
    with connected():
        with on_ray(1, cores()) as one:
            ratios["local_over_one_shard"] = pairwise(lambda: one.advance(many), lambda: local.advance(many), pairs)[0]
        with on_ray(cores(), 1) as several:
            ratio = pairwise(lambda: several.advance(many), lambda: local.advance(many), pairs)[0]
            ratios[f"local_over_{cores()}_shards"] = ratio
            with on_ray(1, 1) as alone:
                ratio = pairwise(lambda: several.advance(many), lambda: alone.advance(many), pairs)[0]
                ratios[f"one_worker_over_{cores()}_workers"] = ratio
            ratios["crossing"] = {f"{cores()}_shards": _crossing(several, local)}
        with on_ray(4, 1) as four:
            ratios["crossing"]["4_shards"] = _crossing(four, local)
    return {"ray": ratios}


def _crossing(game: ClusterRounds, local: Rounds) -> dict[str, float]:
    """Bytes that cross shards in a round against all bytes that nodes hear in it."""
    size = tree.row_bytes(local.outbox)
    crossing, total = size * game.fetched(), size * local.deliveries
    return {"bytes": crossing, "heard_bytes": total, "share": round(crossing / total, 3)}
