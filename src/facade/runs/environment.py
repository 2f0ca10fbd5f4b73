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
CODE = "code"
"""The entry with the SHA-256 of the user's own code, by the name that the experiment gives it."""


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
    warnings: list[str]
    """Sentences on changes with which results need not be equal to the bit."""


def continued(recorded: Row, now: Row, rounds: int) -> Continuation:
    """What is recorded of a run that goes on, after so many rounds, in the environment of `now`."""
    before = environments(recorded)[-1]
    changed = {key: value for key, value in now.items() if before.get(key) != value}
    if not changed:
        return Continuation(recorded, [])
    stages = [*recorded.get("continued", []), {"after_round": rounds, **changed}]
    keys = [key for key in _DECIDES_BITS if key in changed]
    deciding = differences({key: before.get(key) for key in keys}, {key: changed[key] for key in keys})
    said = []
    if deciding:
        said.append(f"continuing in another environment ({', '.join(deciding)}): results need not be equal to the bit")
    if code := changed_code(before.get(CODE), now.get(CODE, {})):
        said.append(
            f"continuing with other code than the run had up to round {rounds} ({', '.join(code)}): its results will be"
            " those of neither; to compute it with one code, start again in another directory"
        )
    return Continuation({**recorded, "continued": stages}, said)


def changed_code(before: Row | None, now: Row) -> list[str]:
    """In words, the user's own code that is other than it was; none where that was not written down."""
    return (
        []
        if before is None
        else [
            f"{name}: its source has SHA-256 {str(now.get(name))[:16]}..., {str(sha256)[:16]}... then"
            for name, sha256 in before.items()
            if now.get(name) != sha256
        ]
    )
