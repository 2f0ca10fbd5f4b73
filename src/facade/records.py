"""The run directory: what a run writes, so that everything can be computed again from it.

experiment.toml      the resolved experiment
federation.json      classes, clusters, images per node
environment.json     versions, machine, threads, executor
rows.jsonl           append-only facts per node: every round, every evaluation; no clock values
timings.jsonl        seconds per phase between evaluations
models.safetensors   the deployed model of every node, stacked along the first axis
result.json          the summary, written last: its presence says that the run is complete
"""

from __future__ import annotations

import json
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from facade.config import Experiment
from facade.data.federation import Federation
from facade.errors import RunDirectoryError
from facade.tree import Params

Row = dict[str, Any]
KINDS = ("round", "evaluation", "final")
"""Kinds of rows: notes after each round, tests at evaluations, tests after the final exchange."""


def in_order(rows: list[Row]) -> list[Row]:
    """Rows of several shards as one shard would have written them."""
    return sorted(rows, key=lambda row: (row["round"], KINDS.index(row["kind"]), row["node"]))


class RunDirectory:
    """A directory with one run in it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def check_free(cls, path: Path, experiment: Experiment) -> None:
        """Raise RunDirectoryError if the path cannot take a new run of the experiment."""
        if not path.exists():
            return
        if not path.is_dir():
            raise RunDirectoryError(f"--out {path} is a file; give a directory that is new or empty")
        if not any(path.iterdir()):
            return
        described = path / "experiment.toml"
        if not described.exists():
            raise RunDirectoryError(f"--out {path} holds other files; give a directory that is new or empty")
        same = Experiment.load(described).hash == experiment.hash
        what = "a run of this experiment" if same else "a run of another experiment"
        raise RunDirectoryError(f"--out {path} already holds {what}; give another directory or remove it")

    @classmethod
    def create(cls, path: Path, experiment: Experiment, federation: Federation, environment: Row) -> RunDirectory:
        """Start a run directory with what is known before the first round."""
        cls.check_free(path, experiment)
        try:
            path.mkdir(parents=True, exist_ok=True)
            (path / "experiment.toml").write_text(experiment.toml())
        except OSError as error:
            raise RunDirectoryError(f"--out {path} cannot be written: {error.strerror}") from None
        run = cls(path)
        run._json("federation.json", described(federation))
        run._json("environment.json", environment)
        run.append("rows.jsonl", [])
        return run

    def append(self, name: str, rows: list[Row]) -> None:
        """Add lines to a file of the run."""
        with (self.path / name).open("a") as file:
            file.writelines(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)

    def finish(self, models: Params, summary: Row) -> None:
        """Write the final models and, last of all, the summary."""
        from safetensors.torch import save_file

        save_file({name: leaf.contiguous() for name, leaf in models.items()}, self.path / "models.safetensors")
        self._json("result.json", summary)

    def _json(self, name: str, content: Row) -> None:
        (self.path / name).write_text(json.dumps(content, indent=1) + "\n")


def described(federation: Federation) -> Row:
    """What a reader of a run must know of its data: no data."""
    return {
        "classes": federation.classes,
        "cluster": None if federation.cluster is None else federation.cluster.tolist(),
        "images": [len(rows) for rows in federation.training.rows],
        "leftover": federation.leftover,
        "overlapping": federation.overlapping,
    }


def environment(threads: int, executor: str) -> Row:
    """Where a run was computed."""
    return {
        "facade": version("facade-dl"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "threads": threads,
        "executor": executor,
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
