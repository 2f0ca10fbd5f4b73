"""The run directory: what a run writes, so that everything can be computed again from it.

experiment.toml      the resolved experiment
federation.json      classes, clusters, images per node, how inputs are normalised
environment.json     versions, machine, threads, executor; what changed where the run was continued
rows.jsonl           append-only facts per node: every round, every evaluation; no clock values
timings.jsonl        seconds per phase between evaluations, and up to where it was stopped
checkpoints/         while the run is under way: what is needed to continue it
models.safetensors   the deployed model of every node, stacked along the first axis
moments.safetensors  what the rows say, as arrays: who looks at the run need not read them, but could
result.json          the summary, written last: its presence says that the run is complete

Files are private to their owner. Each is covered by a SHA-256 that is checked before the file is used: result.json has
its own and those of all others, a checkpoint those of the files beside it, experiment.toml its own in its last line. A
run of a version before there were such seals is read like any other, and counts as not sealed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tomllib
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from shlex import quote

from facade.core.names import is_foreign
from facade.core.types import Row
from facade.data.federation import Federation
from facade.errors import ExperimentError, RunDirectoryError
from facade.experiment.config import Experiment
from facade.experiment.decisive_settings import decisive_settings, differences
from facade.files import json_lines, seals, store
from facade.files.growing_file import GrowingFile, Mark
from facade.files.locks import lock
from facade.runs import moments_file, state_files
from facade.runs.environment import continued
from facade.runs.federation_facts import differing_facts, federation_facts
from facade.runs.moments import Moments
from facade.runs.rows import RowsFile
from facade.runs.state_files import PiecewiseTree

_OF_TRACKERS = ("tensorboard", "wandb")
"""Directories that a tracker makes before the run has begun; one that then fails leaves nothing else."""
_LOCK = ".lock.tmp"
"""Made where directories cannot be locked; `store.is_temporary` takes it for nothing of the run."""
_EXPERIMENT, _FEDERATION, _ENVIRONMENT = "experiment.toml", "federation.json", "environment.json"
_SUMMARIES = ("result.json", "outcome.json")
"""The file with the seals of the others is written last: that of a run, and that of a site."""


class BusyError(RunDirectoryError):
    """Another process is computing the run."""


class RunDirectory:
    """A directory with one run in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._growing: dict[str, GrowingFile] = {}
        self._written: dict[str, str] = {}
        """The SHA-256 of files as they were written, or found good, by this object."""
        self._seals: tuple[tuple[int, ...], Mapping[str, str]] | None = None
        """Those that were read last, and of which file."""
        self.environment: Row | None = None
        """What environment.json says of a run that is being computed."""

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
        path = kept if kept.exists() else self.path / "rows.jsonl"
        return RowsFile(path, self.seals.get(path.name))

    @property
    def seals(self) -> Mapping[str, str]:
        """The SHA-256 of the files of a finished run, by name; none where it is not finished, or not sealed."""
        for name in _SUMMARIES:
            if (self.path / name).exists():
                return self._seals_in(self.path / name)
        return {}

    def _seals_in(self, path: Path) -> Mapping[str, str]:
        """The seals in a summary, which is read when it is another file than before: that of many nodes is long."""
        there = path.stat()
        which = there.st_ino, there.st_size, there.st_mtime_ns
        if self._seals is None or self._seals[0] != which:
            self._seals = which, seals.read_json(path).files or {}
        return self._seals[1]

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
            written = tomllib.loads(self.content(_EXPERIMENT).decode())
        except (OSError, ValueError) as error:
            raise RunDirectoryError(f"{self.path} holds no run: experiment.toml cannot be read ({error})") from None
        try:
            return written if is_foreign(str(written["algorithm"]["name"])) else Experiment.of(written).model_dump()
        except (ExperimentError, LookupError, TypeError):
            return written

    def read(self, name: str) -> Row:
        """A JSON file of the run."""
        path = self.path / name
        try:
            if name in _SUMMARIES:
                return seals.read_json(path).content
            content: Row = json.loads(self.content(name))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise RunDirectoryError(f"{path} cannot be read ({reason}); the run is not whole") from None
        return content

    def content(self, name: str) -> bytes:
        """A file of the run, as it was written; DamagedFileError if it is not, OSError if it is not there."""
        content = (self.path / name).read_bytes()
        self._check(name, seals.sha256(content))
        if name == _EXPERIMENT:
            seals.check_text(self.path / name, content)
        return content

    def check_file(self, name: str) -> None:
        """DamagedFileError unless a file of a finished run, which may be large, is as it was written."""
        if name in self.seals:
            self._check(name, seals.sha256_of(self.path / name))

    def _check(self, name: str, found: str) -> None:
        seals.check(self.path / name, found, self.seals.get(name, found))

    @contextlib.contextmanager
    def claimed(self) -> Iterator[None]:
        """Make the directory and keep other processes from writing to it meanwhile."""
        with contextlib.ExitStack() as opened:
            try:
                store.make_directory(self.path)
                handle = os.open(self.path, os.O_RDONLY)
                opened.callback(os.close, handle)
                locked = self._locked(handle)
                if not locked:  # NFS locks nothing but files that are open for writing
                    handle = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT, store.PRIVATE)
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

    @property
    def is_claimed(self) -> bool:
        """Whether a process has claimed the directory at the moment; False where the file system has no locks."""
        for path, mode in ((self.path, os.O_RDONLY), (self.path / _LOCK, os.O_RDWR)):
            with contextlib.suppress(FileNotFoundError):
                handle = os.open(path, mode)
                try:
                    lock(handle)
                except BlockingIOError:
                    return True
                finally:
                    os.close(handle)
        return False

    def _locked(self, handle: int) -> bool:
        """Whether the file could be locked; False where that is not possible at all."""
        try:
            return lock(handle)
        except BlockingIOError:
            raise BusyError(f"{self.path}: another process is computing this run; wait for it") from None

    def begin(self, experiment: Experiment, federation: Federation, environment: Row) -> None:
        """Write what is known before the first round; an earlier beginning of the same run is
        written over, its rows are cut."""
        self._write(_EXPERIMENT, [seals.sealed_text(experiment.toml())])
        self._write(_FEDERATION, [_json(federation_facts(federation))])
        self._write_environment(environment)
        self.cut("rows.jsonl", 0)
        self.cut("timings.jsonl", 0)

    def resume(self, federation: Federation, environment: Row, rounds: int, recorded: Row | None = None) -> None:
        """Refuse to continue, after so many rounds, on other data; note an environment that is another than before, and
        warn where it cannot give the same bits. `recorded`: what environment.json said by then; a continuation that a
        crash ended before its first checkpoint has left nothing, and is forgotten."""
        self.check_data(federation)
        recorded = self.read(_ENVIRONMENT) if recorded is None else recorded
        continuation = continued(recorded, environment, rounds)
        self._write_environment(continuation.recorded)
        for sentence in continuation.warnings:
            warnings.warn(sentence, stacklevel=2)

    @property
    def written(self) -> Mapping[str, str]:
        """The SHA-256 of what describes the run, which nothing changes while it is computed."""
        for name in (_EXPERIMENT, _FEDERATION):
            if name not in self._written:
                self._written[name] = seals.sha256(self.content(name))
        return {name: self._written[name] for name in (_EXPERIMENT, _FEDERATION)}

    def expect(self, written: Mapping[str, str]) -> None:
        """DamagedFileError unless files have the SHA-256 that a checkpoint wrote down."""
        for name, expected in written.items():
            remedy = "restore it from a copy, or compute the run again in another directory"
            seals.check(self.path / name, seals.sha256_of(self.path / name), expected, remedy)
        self._written |= written

    def _write_environment(self, environment: Row) -> None:
        self._write(_ENVIRONMENT, [_json(environment)])
        self.environment = environment

    def check_data(self, federation: Federation) -> None:
        """RunDirectoryError unless these are the data of the run."""
        differing = differing_facts(self.read("federation.json"), federation_facts(federation))
        if differing:
            raise RunDirectoryError(
                f"the data are not those that {self.path} began with ({', '.join(differing)} differ);"
                " restore them, or start again in another directory"
            )

    def growing(self, name: str) -> GrowingFile:
        """A file of the run that lines are appended to."""
        return self._growing.setdefault(name, GrowingFile(self.path / name))

    def append(self, name: str, rows: list[Row]) -> None:
        """Add lines to a file of the run."""
        self.growing(name).append(json_lines.encoded(rows))

    def mark(self, name: str) -> Mark:
        """How far a file of the run has grown; that much is on the disk when this returns."""
        return self.growing(name).mark()

    def cut(self, name: str, length: int) -> None:
        """Keep the first `length` bytes of a file of the run."""
        self.growing(name).cut(length)

    def finish(self, models: PiecewiseTree, moments: Moments, summary: Row) -> None:
        """Write the final models, the moments that the rows tell of and, last of all, the summary, with the seals of
        all files."""
        growing = {name: self.mark(name).sha256 or "" for name in ("rows.jsonl", "timings.jsonl")}
        self._write("models.safetensors", state_files.file_parts(models))
        self._write(moments_file.FILE, moments_file.parts(moments, growing["rows.jsonl"]))
        files = {**self._written, **self.written, **growing}
        store.replace(self.path / "result.json", seals.sealed_json(summary, files), store.PRIVATE)

    def _write(self, name: str, parts: Iterable[bytes | memoryview]) -> None:
        """Replace a file, and know its SHA-256."""
        digest = hashlib.sha256()

        def hashed() -> Iterator[bytes | memoryview]:
            for part in parts:
                digest.update(part)
                yield part

        store.write(self.path / name, hashed(), store.PRIVATE)
        self._written[name] = digest.hexdigest()


def _json(content: Row) -> bytes:
    return (json.dumps(content, indent=1) + "\n").encode()
