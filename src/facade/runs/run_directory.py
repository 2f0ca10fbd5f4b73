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
import json
import os
import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

from facade.core.names import is_foreign
from facade.core.types import Row
from facade.data.federation import Federation
from facade.errors import ExperimentError, RunDirectoryError
from facade.experiment.config import Experiment
from facade.experiment.decisive_settings import decisive_settings, differences
from facade.files import store
from facade.files.locks import lock
from facade.runs import state_files
from facade.runs.environment import continued
from facade.runs.federation_facts import differing_facts, federation_facts
from facade.runs.rows import RowsFile
from facade.runs.state_files import PiecewiseTree

_OF_TRACKERS = ("tensorboard", "wandb")
"""Directories that a tracker makes before the run has begun; one that then fails leaves nothing else."""
_LOCK = ".lock.tmp"
"""Made where directories cannot be locked; `store.is_temporary` takes it for nothing of the run."""


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

    @property
    def resume_command(self) -> str:
        """What continues the run in a shell."""
        return f"facade run {quote(f'{self.path}/experiment.toml')} --out {quote(str(self.path))} --resume"

    def check(self, experiment: Experiment, resume: bool) -> None:
        """Raise RunDirectoryError if the experiment cannot be run, or continued, here."""
        if not self.path.exists():
            return
        if not self.path.is_dir():
            raise RunDirectoryError(f"{self.path} is a file; give a directory that is new or empty")
        if not self.started:
            if all(store.is_temporary(path) or path.name in _OF_TRACKERS for path in self.path.iterdir()):
                return
            raise RunDirectoryError(f"{self.path} holds other files; give a directory that is new or empty")
        differing = differences(decisive_settings(self.experiment()), decisive_settings(experiment.model_dump()))
        if resume and differing:
            raise RunDirectoryError(
                f"{self.path} holds another experiment, which cannot be resumed by this one: "
                f"{', '.join(differing)}; give another directory, or the settings of that run"
            )
        if (self.path / "rows.jsonl.gz").exists() and not self.finished:
            raise RunDirectoryError(
                f"{self.path} is a kept run without its result, which cannot be continued; give another directory"
            )
        if not resume:
            what = "a run of another experiment" if differing else "a run of this experiment"
            remedy = "give another directory or remove it" if differing else "add `resume=True` to continue it"
            raise RunDirectoryError(f"{self.path} already holds {what}; {remedy}")

    def experiment(self) -> Row:
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
        store.replace_json(self.path / "federation.json", federation_facts(federation))
        store.replace_json(self.path / "environment.json", environment)
        self.cut("rows.jsonl", 0)
        self.cut("timings.jsonl", 0)

    def resume(self, federation: Federation, environment: Row, rounds: int) -> None:
        """Refuse to continue, after so many rounds, on other data; note an environment that is another than before, and
        warn where it cannot give the same bits."""
        self.check_data(federation)
        recorded = self.read("environment.json")
        continuation = continued(recorded, environment, rounds)
        if continuation.recorded != recorded:
            store.replace_json(self.path / "environment.json", continuation.recorded)
        if continuation.deciding:
            warnings.warn(
                f"continuing in another environment ({', '.join(continuation.deciding)}): results need not be equal to"
                " the bit",
                stacklevel=2,
            )

    def check_data(self, federation: Federation) -> None:
        """RunDirectoryError unless these are the data of the run."""
        differing = differing_facts(self.read("federation.json"), federation_facts(federation))
        if differing:
            raise RunDirectoryError(
                f"the data are not those that {self.path} began with ({', '.join(differing)} differ);"
                " restore them, or start again in another directory"
            )

    def append(self, name: str, rows: list[Row]) -> None:
        """Add lines to a file of the run."""
        lines = (json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
        store.append(self.path / name, "".join(lines).encode())

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

    def finish(self, models: PiecewiseTree, summary: Row) -> None:
        """Write the final models and, last of all, the summary."""
        store.sync(self.path / "rows.jsonl")
        store.write(self.path / "models.safetensors", state_files.file_parts(models))
        store.replace_json(self.path / "result.json", summary)
