"""The messages that a node has published lately: on disk first, then there for others to pull."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from facade.errors import FacadeError
from facade.files.store import Buffer, Store


class DivergedReplayError(FacadeError):
    """A round that was played again gave another message than the one that was published."""


class Published(NamedTuple):
    """A message that is ready to be pulled."""

    path: Path
    total: int
    digest: bytes

    def chunk(self, offset: int, length: int) -> bytes:
        """A part of it, read from disk; the file system keeps in memory what is asked for often."""
        with self.path.open("rb", buffering=0) as file:
            file.seek(offset)
            return file.read(min(length, self.total - offset))


class Outgoing:
    """The messages of the last `window` rounds. A message is on disk before anybody can pull it."""

    def __init__(self, directory: Path, window: int) -> None:
        self._store = Store(directory, keep=window)
        self._ready = threading.Condition()
        self._published = {
            saved.number: Published(saved.path, len(saved.content), saved.sha256)
            for saved in self._store.newest_first()
        }

    def check(self, round: int, parts: Sequence[Buffer]) -> None:
        """DivergedReplayError unless a round's message, if it is published, is this one: others may have used it."""
        earlier = self._published.get(round)
        if earlier is not None and earlier.digest != _sha256(parts):
            raise DivergedReplayError(
                f"round {round}, played again, gives another message than the one published before;"
                " the data, the code or the machine have changed since: restore them, or leave the federation"
            )

    def commit(self, round: int, parts: Sequence[Buffer]) -> Published:
        """Put a round's message on disk and publish it. A message that is there already must be the same."""
        self.check(round, parts)
        published = self._published.get(round) or Published(*self._store.write(round, parts))
        with self._ready:
            self._published[round] = published
            kept = set(self._store.numbers)
            self._published = {number: p for number, p in self._published.items() if number in kept}
            self._ready.notify_all()
        return published

    @property
    def rounds(self) -> list[int]:
        """The rounds whose messages are published, ascending."""
        with self._ready:
            return sorted(self._published)

    def withdraw(self, round: int) -> None:
        """Take back a round's message, for the round is played by another list: nobody can use what was
        made under the one before."""
        with self._ready:
            withdrawn = self._published.pop(round, None)
        if withdrawn is not None:
            withdrawn.path.unlink(missing_ok=True)

    def get(self, round: int, seconds: float = 0.0) -> Published | None:
        """A round's message, waited for that long at most."""
        with self._ready:
            if seconds and round > max(self._published, default=-1):
                self._ready.wait_for(lambda: round <= max(self._published, default=-1), seconds)
            return self._published.get(round)


def _sha256(parts: Sequence[Buffer]) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.digest()
