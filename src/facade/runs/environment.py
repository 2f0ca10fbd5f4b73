"""Where a run was computed, as its environment.json says: versions, machine, threads, executor, and what changed where
the run was continued."""

from __future__ import annotations

import platform
from typing import NamedTuple

import numpy as np
import torch

import facade
from facade.core.types import Row
from facade.experiment.decisive_settings import differences
from facade.learning import machine

_DECIDES_BITS = ("torch", "numpy", "cpu", "executor")
"""Entries that can change the last bits of a result."""


def versions() -> Row:
    """Of what computes here."""
    return {
        "facade": facade.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


def environment(threads: int, executor: str) -> Row:
    """What computes here, and how."""
    return versions() | {
        "platform": platform.platform(),
        "cpu": machine.cpu(),
        "cores": machine.cores(),
        "threads": threads,
        "executor": executor,
    }


def environments(recorded: Row) -> list[Row]:
    """Where a run was computed: where it began, then wherever it was continued."""
    stages = [{key: value for key, value in recorded.items() if key != "continued"}]
    for changed in recorded.get("continued", []):
        stages.append(stages[-1] | {key: value for key, value in changed.items() if key != "after_round"})
    return stages


class Continuation(NamedTuple):
    """A run that is continued."""

    recorded: Row
    """What environment.json says from now on."""
    deciding: list[str]
    """In words, changes with which results need not be equal to the bit."""


def continued(recorded: Row, now: Row, rounds: int) -> Continuation:
    """What is recorded of a run that goes on, after so many rounds, in the environment of `now`."""
    before = environments(recorded)[-1]
    changed = {key: value for key, value in now.items() if before.get(key) != value}
    if not changed:
        return Continuation(recorded, [])
    stages = [*recorded.get("continued", []), {"after_round": rounds, **changed}]
    keys = [key for key in _DECIDES_BITS if key in changed]
    deciding = differences({key: before.get(key) for key in keys}, {key: changed[key] for key in keys})
    return Continuation({**recorded, "continued": stages}, deciding)
