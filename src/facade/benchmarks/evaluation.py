"""How close evaluations come to bare forward passes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from facade.benchmarks.bare import BareLoop
from facade.benchmarks.rounds import CIFAR, MAMMALS, Rounds, federation, pairwise, prepared
from facade.core.engine import evaluate
from facade.learning import models
from facade.learning.executor import in_chunks
from facade.learning.machine import cores

NODES = 8
_LARGE = "facade.benchmarks.large_models"


class Case(NamedTuple):
    """What is evaluated."""

    model: str
    shape: tuple[int, ...]
    tests: int
    """Samples of the test set: some seconds on two cores."""


CASES = {
    "gn-lenet": Case("gn-lenet", CIFAR, 1024),
    "resnet8": Case("resnet8", MAMMALS, 256),
    "mlp-10m": Case(f"{_LARGE}:Perceptron", CIFAR, 1024),
    "transformer-10m": Case(f"{_LARGE}:Transformer", CIFAR, 64),
}


def evaluation(case: str, pairs: int) -> dict[str, Any]:
    """Bare time / our time for different models of 8 nodes on one test set, as in a run. Both sides take as many
    samples at a time."""
    model, shape, tests = CASES[case]
    data = federation(shape, NODES, 20, tests)
    game = Rounds(prepared(data, model, {"name": "local"}, "training.init=per-node"))
    (shard,), params = game.setup.shards(), game.state.model
    parts = list(in_chunks(data.tests[0].x.float().div_(255)))
    loop = BareLoop(models.factory(model, shape, len(data.classes))(), cores())

    def ours() -> None:
        evaluate(shard, [params], data.tests[:1], np.zeros(NODES, np.int64))

    ours()
    loop.predict(parts, NODES)
    ratios, mine, theirs = pairwise(ours, lambda: loop.predict(parts, NODES), pairs)
    each = {"milliseconds_per_sample": mine, "bare_milliseconds_per_sample": theirs}
    return ratios | {name: round(1e3 * spent / NODES / tests, 4) for name, spent in each.items()}


def run(quick: bool) -> dict[str, Any]:
    """Small and large models."""
    return {"evaluation_of": {case: evaluation(case, 2 if quick else 8) for case in CASES}}
