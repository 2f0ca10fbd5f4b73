"""Our rounds as the benchmarks drive them: real experiments on made-up images of real shapes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from facade.core.engine import RoundLoop, play
from facade.core.messages import Post
from facade.core.turn import listed
from facade.data.federation import Federation
from facade.data.samples import Holdings, Labelled
from facade.experiment.config import Experiment
from facade.experiment.setup import Setup, set_up
from facade.learning.torch_threads import one_intra_op_thread
from facade.runtimes.local import deliver

CIFAR = (3, 32, 32)
MAMMALS = (3, 64, 64)


def images(shape: tuple[int, ...], count: int, classes: int = 10) -> Labelled:
    """Random images and labels."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(0, 256, (count, *shape), dtype=torch.uint8, generator=generator)
    return Labelled(x, torch.randint(0, classes, (count,), generator=generator))


def federation(shape: tuple[int, ...], nodes: int, per_node: int, tests: int = 100, classes: int = 10) -> Federation:
    """Two clusters of random images, `per_node` each, the last two nodes in the second."""
    samples = images(shape, nodes * per_node, classes)
    rows = list(np.arange(nodes * per_node).reshape(nodes, per_node))
    cluster = np.repeat([0, 1], [nodes - 2, 2])
    test = images(shape, tests, classes)
    names = [str(c) for c in range(classes)]
    return Federation(Holdings(samples, np.arange(nodes), rows), [test, test], cluster, names, [0.5], [0.5], cluster)


def prepared(data: Federation, model: str, algorithm: dict[str, Any], *settings: str) -> Setup:
    """The parts of an experiment on the given data."""
    return set_up(described(data, model, algorithm, *settings), data)


def described(data: Federation, model: str, algorithm: dict[str, Any], *settings: str) -> Experiment:
    """An experiment on the given data, without end if the settings name none."""
    written = {
        "data": {"source": "given", "clusters": ":".join(map(str, np.bincount(data.cluster)))},  # type: ignore[arg-type]
        "model": {"name": model},
        "algorithm": {"warmup": 0, "seeding": "none"} | algorithm,
        "training": {"rounds": 10**6, "steps": 10, "batch": 8, "lr": 0.01},
        "evaluation": {"every": 10**6},
    }
    return Experiment.of(written, settings)


class Rounds:
    """A run that can be advanced a few rounds at a time."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self._shards = setup.shards()
        with one_intra_op_thread():
            self._loop = RoundLoop(play(setup.algorithm, self._shards[0], setup.plan, setup.federation))

    @property
    def _post(self) -> Post:
        assert self._loop.post is not None, "it has no end"
        return self._loop.post

    @property
    def state(self) -> Any:
        """The nodes' state before the current round."""
        return self._post.state

    @property
    def outbox(self) -> Any:
        """The messages of the current round."""
        return self._post.outbox

    @property
    def deliveries(self) -> int:
        """How many messages nodes hear in the current round."""
        return len(listed(self._shards[0], self._post.wanted).sender)

    def advance(self, rounds: int) -> None:
        """Play some rounds."""
        with one_intra_op_thread():
            for _ in range(rounds):
                self._loop.advance(deliver([self._post], self._shards)[0])


def seconds(work: Callable[[], object]) -> float:
    """How long a piece of work takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def alternate(game: Rounds, bare: Callable[[], None], pairs: int, least: float = 3.2) -> dict[str, Any]:
    """Bare time / our time of rounds, in alternating slices of at least so many seconds, and where our time goes."""
    game.advance(1)
    bare()
    many = max(1, round(least / seconds(bare) + 0.5))
    game.setup.learner.stopwatch.lap()

    def bare_slice() -> None:
        for _ in range(many):
            bare()

    ratios, mine, theirs = pairwise(lambda: game.advance(many), bare_slice, pairs)
    spent = game.setup.learner.stopwatch.lap()
    total = sum(spent.values())
    shares = {phase: round(s / total, 4) for phase, s in sorted(spent.items(), key=lambda item: -item[1])}
    return ratios | {"round_seconds": round(mine / many, 3), "bare_seconds": round(theirs / many, 3), "phases": shares}


def in_a_fresh_process(call: str) -> dict[str, Any]:
    """What a call, such as "scaling.print_scale(100)", prints as the last line of a process of its own."""
    code = f"from facade.benchmarks import {call.partition('.')[0]}; {call}"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return dict(json.loads(ended.stdout.splitlines()[-1]))


def memory(kind: str) -> int:
    """Bytes of this process's memory: "VmRSS" now, "VmHWM" at its peak."""
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith(kind))
    return int(line.split()[1]) * 1024


def quartiles(values: list[float]) -> dict[str, float]:
    """Median and quartiles."""
    q1, median, q3 = np.quantile(values, [0.25, 0.5, 0.75])
    return {"median": round(float(median), 4), "q1": round(float(q1), 4), "q3": round(float(q3), 4)}


def pairwise(
    ours: Callable[[], object], bare: Callable[[], object], pairs: int
) -> tuple[dict[str, float], float, float]:
    """Bare time / our time over alternating slices: quartiles of the ratios, and both medians in
    seconds. Each side goes first in every other pair."""
    times = []
    for pair in range(pairs):
        if pair % 2:
            mine, theirs = seconds(ours), seconds(bare)
        else:
            theirs, mine = seconds(bare), seconds(ours)
        times.append((theirs, mine))
    ratios = quartiles([theirs / mine for theirs, mine in times])
    return ratios, float(np.median([t[1] for t in times])), float(np.median([t[0] for t in times]))
