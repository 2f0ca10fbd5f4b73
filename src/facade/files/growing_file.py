"""A file that lines are appended to while the SHA-256 of all of it is kept."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import NamedTuple

from facade.files import store

_PART = 1 << 20


class Mark(NamedTuple):
    """How far a file had grown."""

    length: int
    """In bytes."""
    sha256: str | None
    """Of all of them; None where a version before there were checksums wrote the mark."""


class GrowingFile:
    """Grows at its end alone. What was written is known without reading it, so that a mark of the file tells what it
    should hold, and not what the disk has made of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._digest: hashlib._Hash | None = None
        """Of what was written; None until the file was first looked at."""
        self._length = 0

    def append(self, content: bytes) -> None:
        """Add all of it, or nothing."""
        self._look()
        assert self._digest is not None
        store.append(self.path, content, self._length)
        self._digest.update(content)
        self._length += len(content)

    def mark(self) -> Mark:
        """How far it has grown; that much is on the disk when this returns."""
        self._look()
        assert self._digest is not None
        if self.path.exists():
            store.sync(self.path)
        return Mark(self._length, self._digest.hexdigest())

    def begins_with(self, mark: Mark) -> bool:
        """Whether what is on the disk begins with what a mark was made of."""
        if self._size() < mark.length:
            return False
        return mark.sha256 is None or self._read(mark.length).hexdigest() == mark.sha256

    def cut(self, length: int) -> None:
        """Keep the first `length` bytes at most."""
        with store.writing(self.path), store.appending(self.path) as file:
            file.truncate(min(length, os.fstat(file.fileno()).st_size))
        self._digest = None

    def _look(self) -> None:
        if self._digest is None:
            self._length = self._size()
            self._digest = self._read(self._length)

    def _size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def _read(self, length: int) -> hashlib._Hash:
        """The SHA-256, which can go on, of the first bytes."""
        digest = hashlib.sha256()
        if length:
            with store.writing(self.path), self.path.open("rb") as file:
                while length and (part := file.read(min(length, _PART))):
                    digest.update(part)
                    length -= len(part)
        return digest
