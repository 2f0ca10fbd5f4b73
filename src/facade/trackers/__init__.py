"""Trackers by name: they watch a run and write its curves where a team already looks. To add one: a
file beside this one and a row in TRACKERS."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import NamedTuple

from facade.core.names import look_up
from facade.errors import need
from facade.trackers.base import Tracker


class Entry(NamedTuple):
    """Where a tracker's class is, and the package it cannot do without."""

    module: str
    name: str
    needs: str


TRACKERS: dict[str, Entry] = {
    "tensorboard": Entry("facade.trackers.tensorboard", "TensorBoard", "tensorboard"),
    "mlflow": Entry("facade.trackers.mlflow", "MLflow", "mlflow"),
    "wandb": Entry("facade.trackers.wandb", "WeightsAndBiases", "wandb"),
}


def tracker(name: str, run_dir: Path) -> Tracker:
    """The named tracker for the run of a directory."""
    entry = look_up("tracker", name, TRACKERS)
    need(name, f"tracker '{name}'", entry.needs)
    watcher: Tracker = getattr(importlib.import_module(entry.module), entry.name)(run_dir)
    return watcher
