"""Rounds of models with some ten million weights: against their bare arithmetic, and what memory they take."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from facade.benchmarks.bare import BareLoop
from facade.benchmarks.rounds import (
    CIFAR,
    MAMMALS,
    Rounds,
    alternate,
    described,
    federation,
    images,
    in_a_fresh_process,
    memory,
    prepared,
)
from facade.learning import models
from facade.learning.machine import cores
from facade.runtimes.local import run as run_here

STEPS, BATCH = 10, 8
_MODELS = "facade.benchmarks.large_models"


class Case(NamedTuple):
    """What is trained."""

    model: str
    shape: tuple[int, ...]
    nodes: int


CASES = {
    "mlp-10m": Case(f"{_MODELS}:Perceptron", CIFAR, 16),
    "transformer-10m": Case(f"{_MODELS}:Transformer", CIFAR, 4),
    "resnet18": Case(f"{_MODELS}:ResNet18", MAMMALS, 8),
}


def efficiency(case: str, pairs: int) -> dict[str, Any]:
    """Bare time / our time of an EL round, in alternating slices of a round or more."""
    model, shape, nodes = CASES[case]
    drawn = images(shape, STEPS * BATCH)
    x, y = drawn.x.float().div_(255).view(STEPS, BATCH, *shape), drawn.y.view(STEPS, BATCH)
    loop = BareLoop(models.factory(model, shape, 10)(), cores())
    game = Rounds(prepared(federation(shape, nodes, 80), model, {"name": "el"}))
    return alternate(game, lambda: loop.train(x, y, nodes, STEPS), pairs, least=0)


def print_peak(case: str) -> None:
    """The peak of this process's memory over a whole run of three rounds and two evaluations, as a multiple of all
    nodes' states."""
    model, shape, nodes = CASES[case]
    before, data = memory("VmRSS"), federation(shape, nodes, 80)
    settings = ("training.rounds=3", "training.steps=2", "evaluation.every=2")
    models_left = run_here(described(data, model, {"name": "el"}, *settings), federation=data).models
    held = sum(leaf.numel() * leaf.element_size() for leaf in models_left.values())
    print(json.dumps({"peak_over_states": round((memory("VmHWM") - before) / held, 2)}))


def run(quick: bool) -> dict[str, Any]:
    """All of them."""
    return {"large": {case: _of(case, 2 if quick else 6) for case in CASES}}


def _of(case: str, pairs: int) -> dict[str, Any]:
    return efficiency(case, pairs) | in_a_fresh_process(f"large.print_peak({case!r})")
