"""Fair decentralized learning: FACADE and the baselines, one algorithm file for every runtime.

The public names are loaded when they are first used, so that the command line answers at once.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from facade.attacks.attack import Attack
    from facade.core.algorithm import Algorithm
    from facade.core.topology import Topology
    from facade.data.federation import Federation
    from facade.errors import DivergedError, ExperimentError, FacadeError
    from facade.experiment.config import Experiment
    from facade.guards.guard import Guard
    from facade.runs.result import Result
    from facade.runtimes.run import run

    __version__: str

# On Linux, the first touch of large tensors takes longer than their arithmetic, unless torch asks for large pages. It
# looks at this when it first allocates memory.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

_HOMES = {
    "Algorithm": "facade.core.algorithm",
    "Attack": "facade.attacks.attack",
    "Experiment": "facade.experiment.config",
    "ExperimentError": "facade.errors",
    "FacadeError": "facade.errors",
    "Federation": "facade.data.federation",
    "Guard": "facade.guards.guard",
    "Result": "facade.runs.result",
    "Topology": "facade.core.topology",
    "DivergedError": "facade.errors",
    "run": "facade.runtimes.run",
}

__all__ = [
    "Algorithm",
    "Attack",
    "DivergedError",
    "Experiment",
    "ExperimentError",
    "FacadeError",
    "Federation",
    "Guard",
    "Result",
    "Topology",
    "run",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("facade-dl")
    if name not in _HOMES:
        raise AttributeError(f"module 'facade' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
