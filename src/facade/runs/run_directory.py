"""The run directory: what a run writes, so that everything can be computed again from it.

experiment.toml      the resolved experiment
federation.json      classes, clusters, images per node, how inputs are normalised
environment.json     versions, machine, threads, executor; what changed where the run was continued
rows.jsonl           append-only facts per node: every round, every evaluation; no clock values
timings.jsonl        seconds per phase between evaluations, and up to where it was stopped
checkpoints/         while the run is under way: what is needed to continue it
models.safetensors   the deployed model of every node, stacked along the first axis
result.json          the summary, written last: its presence says that the run is complete
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import tomllib
import warnings
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from facade.core.names import is_foreign
from facade.core.types import Row
from facade.data.federation import Federation
from facade.errors import ExperimentError, RunDirectoryError
from facade.experiment.config import Experiment, hashed
from facade.files import store
from facade.files.locks import lock
from facade.learning import machine
from facade.runs import state_files
from facade.runs.rows import RowsFile
from facade.runs.state_files import Stack

KINDS = ("round", "evaluation", "final")
"""Kinds of rows: notes after each round, tests at evaluations, tests after the final exchange."""

_OF_TRACKERS = ("tensorboard", "wandb")
"""Directories that a tracker makes before the run has begun; one that then fails leaves nothing else."""
_LOCK = ".lock.tmp"
"""Made where directories cannot be locked; `store.is_temporary` takes it for nothing of the run."""

_DECIDES_BITS = ("torch", "numpy", "cpu", "executor")
"""Entries of environment.json that can change the last bits of a result."""


def in_order(rows: list[Row]) -> list[Row]:
    """Rows of several shards as one shard would have written them."""
    return sorted(rows, key=lambda row: (row["round"], KINDS.index(row["kind"]), row["node"]))


def determining(resolved: Mapping[str, Any]) -> dict[str, Any]:
    """What determines a result, by `section.key`, of a resolved experiment as nested dicts."""
    flat: dict[str, Any] = {}
    for name, value in hashed(resolved).items():
        flat |= {f"{name}.{key}": v for key, v in value.items()} if isinstance(value, Mapping) else {name: value}
    # As it comes back from a file: tuples are lists, and what is None is not written.
    return {key: json.loads(json.dumps(value)) for key, value in flat.items() if value is not None}


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """In words, where two flat descriptions differ."""
    missing = "(not written)"
    keys = [*there, *(key for key in here if key not in there)]
    pairs = [(key, there.get(key, missing), here.get(key, missing)) for key in keys]
    return [f"{key} = {old} there and {new} here" for key, old, new in pairs if old != new]


class RunDirectory:
    """A directory with one run in it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def finished(self) -> bool:
        """Whether the run is complete."""
        return (self.path / "result.json").exists()

    @property
    def started(self) -> bool:
        """Whether there is a run, complete or not."""
        return (self.path / "experiment.toml").exists()

    @property
    def rows(self) -> RowsFile:
        """The facts of the run."""
        kept = self.path / "rows.jsonl.gz"
        return RowsFile(kept if kept.exists() else self.path / "rows.jsonl")

    def check(self, experiment: Experiment, resume: bool) -> None:
        """Raise RunDirectoryError if the experiment cannot be run, or continued, here."""
        if not self.path.exists():
            return
        if not self.path.is_dir():
            raise RunDirectoryError(f"--out {self.path} is a file; give a directory that is new or empty")
        if not self.started:
            if all(store.is_temporary(path) or path.name in _OF_TRACKERS for path in self.path.iterdir()):
                return
            raise RunDirectoryError(f"--out {self.path} holds other files; give a directory that is new or empty")
        differing = differences(determining(self.described()), determining(experiment.model_dump()))
        if resume and differing:
            raise RunDirectoryError(
                f"--out {self.path} holds another experiment, which cannot be resumed by this one: "
                f"{', '.join(differing)}; give another directory, or the settings of that run"
            )
        if (self.path / "rows.jsonl.gz").exists() and not self.finished:
            raise RunDirectoryError(
                f"--out {self.path} is a kept run without its result, which cannot be continued; give another directory"
            )
        if not resume:
            what = "a run of another experiment" if differing else "a run of this experiment"
            remedy = "give another directory or remove it" if differing else "add --resume to continue it"
            raise RunDirectoryError(f"--out {self.path} already holds {what}; {remedy}")

    def described(self) -> Row:
        """The resolved experiment, with fields that are younger than the run at their defaults. One with a user's own
        algorithm, which is not imported for that, or of a version that had other fields is as it was written."""
        try:
            written = tomllib.loads((self.path / "experiment.toml").read_text())
        except (OSError, ValueError) as error:
            raise RunDirectoryError(f"{self.path} holds no run: experiment.toml cannot be read ({error})") from None
        try:
            return written if is_foreign(str(written["algorithm"]["name"])) else Experiment.of(written).model_dump()
        except (ExperimentError, LookupError, TypeError):
            return written

    def read(self, name: str) -> Row:
        """A JSON file of the run."""
        try:
            content: Row = json.loads((self.path / name).read_text())
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise RunDirectoryError(f"{self.path / name} cannot be read ({reason}); the run is not whole") from None
        return content

    @contextlib.contextmanager
    def claimed(self) -> Iterator[None]:
        """Make the directory and keep other processes from writing to it meanwhile."""
        with contextlib.ExitStack() as opened:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                handle = os.open(self.path, os.O_RDONLY)
                opened.callback(os.close, handle)
                locked = self._locked(handle)
                if not locked:  # NFS locks nothing but files that are open for writing
                    handle = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
                    opened.callback(os.close, handle)
                    locked = self._locked(handle)
                if locked:
                    store.remove_leftovers(self.path, but=(_LOCK,))
            except OSError as error:
                raise RunDirectoryError(f"{self.path} cannot be written: {error.strerror}") from None
            if not locked:
                warnings.warn(
                    f"the file system of {self.path} has no locks; let no other process compute the same run",
                    stacklevel=4,
                )
            yield

    def _locked(self, handle: int) -> bool:
        """Whether the file could be locked; False where that is not possible at all."""
        try:
            return lock(handle)
        except BlockingIOError:
            raise RunDirectoryError(f"{self.path}: another process is computing this run; wait for it") from None

    def begin(self, experiment: Experiment, federation: Federation, environment: Row) -> None:
        """Write what is known before the first round; an earlier beginning of the same run is
        written over, its rows are cut."""
        store.replace(self.path / "experiment.toml", experiment.toml().encode())
        self._json("federation.json", described(federation))
        self._json("environment.json", environment)
        self.cut("rows.jsonl", 0)
        self.cut("timings.jsonl", 0)

    def go_on(self, federation: Federation, environment: Row, done: int) -> None:
        """Refuse to continue, after `done` rounds, on other data; note an environment that is another than before, and
        warn where it cannot give the same bits."""
        self.check_data(federation)
        written = self.read("environment.json")
        before = environments(written)[-1]
        changed = {key: value for key, value in environment.items() if before.get(key) != value}
        if changed:
            continued = [*written.get("continued", []), {"after_round": done, **changed}]
            self._json("environment.json", {**written, "continued": continued})
        deciding = [key for key in _DECIDES_BITS if key in changed]
        if deciding:
            differing = differences({key: before.get(key) for key in deciding}, {key: changed[key] for key in deciding})
            warnings.warn(
                f"continuing in another environment ({', '.join(differing)}): results need not be equal to the bit",
                stacklevel=2,
            )

    def check_data(self, federation: Federation) -> None:
        """RunDirectoryError unless these are the data of the run."""
        other = other_data(self.read("federation.json"), described(federation))
        if other:
            raise RunDirectoryError(
                f"the data are not those that {self.path} began with ({', '.join(other)} differ);"
                " restore them, or start again in another directory"
            )

    def append(self, name: str, rows: list[Row]) -> None:
        """Add lines to a file of the run."""
        with store.writing(self.path / name), (self.path / name).open("a") as file:
            file.writelines(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)

    def length(self, name: str) -> int:
        """Bytes of a file of the run, 0 if there is none; they are on the disk when this returns."""
        if not (self.path / name).exists():
            return 0
        store.sync(self.path / name)
        return (self.path / name).stat().st_size

    def cut(self, name: str, length: int) -> None:
        """Keep the first `length` bytes of a file of the run."""
        with store.writing(self.path / name), (self.path / name).open("ab") as file:
            file.truncate(length)

    def finish(self, models: Stack, summary: Row) -> None:
        """Write the final models and, last of all, the summary."""
        store.sync(self.path / "rows.jsonl")
        store.write(self.path / "models.safetensors", state_files.saved(models))
        self._json("result.json", summary)

    def _json(self, name: str, content: Row) -> None:
        store.replace(self.path / name, (json.dumps(content, indent=1) + "\n").encode())


def other_data(there: Row, here: Row) -> list[str]:
    """In what the data of two runs differ, as their federation.json say; that of an older run may say less."""
    return [key for key in there if key in here and key != "notes" and there[key] != here[key]]


def described(federation: Federation) -> Row:
    """What a reader of a run must know of its data: no data."""
    samples = federation.training.samples
    return {
        "classes": federation.classes,
        "cluster": None if federation.cluster is None else federation.cluster.tolist(),
        "images": [len(rows) for rows in federation.training.rows],
        "test_of": federation.test_of.tolist(),
        "test_images": [len(test) for test in federation.tests],
        "leftover": federation.leftover,
        "overlapping": federation.overlapping,
        "notes": federation.notes,
        "shape": list(federation.shape),
        "stored": str(samples.x.dtype).removeprefix("torch."),
        "mean": federation.mean,
        "std": federation.std,
        "sha256": _digest(federation),
    }


def _digest(federation: Federation) -> str:
    """SHA-256 of all images and labels and of who holds which."""
    digest = hashlib.sha256()
    for part in (federation.training.samples, *federation.tests, *(federation.validations or [])):
        digest.update(np.ascontiguousarray(part.x.numpy()).data)
        digest.update(np.ascontiguousarray(part.y.numpy()).data)
    for rows in federation.training.rows:
        digest.update(np.ascontiguousarray(rows).data)
    return digest.hexdigest()


def environments(written: Row) -> list[Row]:
    """Where a run was computed, as environment.json says: where it began, then wherever it was continued."""
    legs = [{key: value for key, value in written.items() if key != "continued"}]
    for changed in written.get("continued", []):
        legs.append(legs[-1] | {key: value for key, value in changed.items() if key != "after_round"})
    return legs


def versions() -> Row:
    """Of what computes here."""
    return {
        "facade": version("facade-dl"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


def environment(threads: int, executor: str) -> Row:
    """Where a run was computed."""
    return versions() | {
        "platform": platform.platform(),
        "cpu": machine.cpu(),
        "cores": machine.cores(),
        "threads": threads,
        "executor": executor,
    }
