"""The paper's overhead question: what do k heads cost beside EL?"""

from __future__ import annotations

from typing import Any

import numpy as np

from facade.benchmarks.rounds import CIFAR, MAMMALS, Rounds, federation, prepared, seconds
from facade.core import tree
from facade.data.federation import Federation

NODES = 4
CASES = {"gn-lenet": (CIFAR, 10), "resnet8": (MAMMALS, 41)}


def run(quick: bool) -> dict[str, Any]:
    """Time, state and message of FACADE over those of EL, for k = 1, 2, 3, 5."""
    return {"overhead": {model: _model(model, 1 if quick else 4) for model in CASES}}


def _model(model: str, pairs: int) -> dict[str, Any]:
    shape, classes = CASES[model]
    data = federation(shape, NODES, 100, classes=classes)
    el = _rounds(data, model, {"name": "el"})
    return {f"k={k}": _heads(el, _rounds(data, model, _facade(k)), pairs) for k in (1, 2, 3, 5)}


def _facade(heads: int) -> dict[str, Any]:
    return {"name": "facade", "heads": heads}


def _rounds(data: Federation, model: str, algorithm: dict[str, Any]) -> Rounds:
    return Rounds(prepared(data, model, algorithm, "topology.degree=2"))


def _heads(el: Rounds, facade: Rounds, pairs: int) -> dict[str, float]:
    times = [seconds(lambda: facade.advance(1)) / seconds(lambda: el.advance(1)) for _ in range(pairs)]
    return {
        "time": round(float(np.median(times)), 3),
        "state_bytes": round(tree.row_bytes(facade.state) / tree.row_bytes(el.state), 3),
        "message_bytes": tree.row_bytes(facade.outbox) - tree.row_bytes(el.outbox),
    }
