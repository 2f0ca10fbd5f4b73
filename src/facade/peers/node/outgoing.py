"""What a node keeps on disk: its outgoing messages of the last rounds, and checkpoints."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from facade.core.tree import Params
from facade.errors import FacadeError
from facade.files.store import Store
from facade.runs import state_files
from facade.runs.run_directory import RunDirectory


class DivergedReplayError(FacadeError):
    """A round that was played again gave another message than the one that was published."""


class LostCheckpointError(FacadeError):
    """A run has begun, and there is nothing to continue it from."""


class Published(NamedTuple):
    """A message that is ready to be pulled."""

    path: Path
    total: int
    digest: bytes

    def chunk(self, offset: int, length: int) -> bytes:
        """A part of it, read from disk; the file system keeps in memory what is asked for often."""
        with self.path.open("rb") as file:
            file.seek(offset)
            return file.read(min(length, self.total - offset))


class Outgoing:
    """The messages of the last `window` rounds. A message is on disk before anybody can pull it."""

    def __init__(self, directory: Path, window: int) -> None:
        self._store = Store(directory, keep=window)
        self._ready = threading.Condition()
        self._published = {
            saved.number: Published(saved.path, len(saved.content), hashlib.sha256(saved.content).digest())
            for saved in self._store.newest_first()
        }

    def check(self, round: int, content: bytes) -> None:
        """DivergedReplayError unless a round's message, if it is published, is this one: others may have used it."""
        known = self._published.get(round)
        if known is not None and known.digest != hashlib.sha256(content).digest():
            raise DivergedReplayError(
                f"round {round}, played again, gives another message than the one published before;"
                " the data, the code or the machine have changed since: restore them, or leave the federation"
            )

    def commit(self, round: int, content: bytes) -> Published:
        """Put a round's message on disk and publish it. A message that is there already must be the same."""
        self.check(round, content)
        made = self._published.get(round) or Published(
            self._store.save(round, content), len(content), hashlib.sha256(content).digest()
        )
        with self._ready:
            self._published[round] = made
            kept = set(self._store.numbers)
            self._published = {number: p for number, p in self._published.items() if number in kept}
            self._ready.notify_all()
        return made

    @property
    def rounds(self) -> list[int]:
        """The rounds whose messages are published, ascending."""
        with self._ready:
            return sorted(self._published)

    def withdraw(self, round: int) -> None:
        """Take back a round's message, for the round is played by another list: nobody can use what was
        made under the one before."""
        with self._ready:
            known = self._published.pop(round, None)
        if known is not None:
            known.path.unlink(missing_ok=True)

    def get(self, round: int, seconds: float = 0.0) -> Published | None:
        """A round's message, waited for that long at most."""
        with self._ready:
            if seconds and round > max(self._published, default=-1):
                self._ready.wait_for(lambda: round <= max(self._published, default=-1), seconds)
            return self._published.get(round)


@dataclass(frozen=True)
class SiteCheckpoint:
    """A node at the start of a round."""

    round: int
    epoch: int
    state: Params
    """[1, ...], flat."""
    ledger: dict[str, Any]
    rows: int
    """Bytes of rows.jsonl at that moment."""


class SiteCheckpoints:
    """The newest three checkpoints of a node."""

    def __init__(self, files: RunDirectory) -> None:
        self._files = files
        self._store = Store(files.path / "checkpoints", keep=3)

    def save(self, round: int, epoch: int, state: Any, ledger: dict[str, Any]) -> None:
        """Store the state at the start of a round; rows made before it are written."""
        facts = {"round": round, "epoch": epoch, "ledger": ledger, "rows": self._files.length("rows.jsonl")}
        self._store.write(round, state_files.file_parts(state_files.in_one_piece(state), facts))

    def newest(self) -> SiteCheckpoint | None:
        """The newest one that is whole, and whose rows are."""
        for saved in self._store.newest_first():
            state, facts = state_files.read_file(saved.content)
            if self._files.length("rows.jsonl") >= facts["rows"]:
                return SiteCheckpoint(facts["round"], facts["epoch"], state, facts["ledger"], facts["rows"])
        return None

    def missing(self) -> str:
        """What a begun run lacks that has no usable checkpoint, in words."""
        counted = [state_files.read_file(saved.content)[1]["rows"] for saved in self._store.newest_first()]
        if not counted:
            return f"{self._store.directory} holds no checkpoint that is whole"
        there = self._files.length("rows.jsonl")
        return f"{self._files.path / 'rows.jsonl'} has {there} bytes, and the checkpoints count on {min(counted)}"

    @property
    def begun(self) -> bool:
        """Whether there is any checkpoint, good or damaged."""
        return bool(self._store.numbers)
