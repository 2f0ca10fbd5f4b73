"""What is added to a file that another process writes, line by line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

_PART = 1 << 22
"""Bytes that are read at a time."""
_TAIL = 256
"""Bytes before the end of what was read, by which the file is known again."""


class Added(NamedTuple):
    """What was found."""

    content: bytes
    """Whole lines; one that is still being written is waited for."""
    anew: bool
    """Whether they are the first of the file: it was cut, or another one stands in its place."""
    more: bool
    """Whether there is more to read at once."""


NOTHING = Added(b"", False, False)


class FollowedFile:
    """Reads every byte once. A file that was cut or replaced is read from its beginning; one that was cut and has grown
    again to the same bytes, as a resumed run leaves it, is the same to a reader."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        self._tail = b""
        self._seen: tuple[int, int, int] | None = None
        """Inode, size and time of change when it was last looked at."""

    def read(self) -> Added:
        """What was added since the last time; nothing while the file is not there."""
        try:
            status = os.stat(self.path)
        except OSError:
            return self._begin_anew()
        seen = status.st_ino, status.st_size, status.st_mtime_ns
        if seen == self._seen:
            return NOTHING
        anew = self._seen is not None and (status.st_ino != self._seen[0] or status.st_size < self._offset)
        if anew:
            self._begin_anew()
        try:
            added = self._read(status.st_size)
            if added is None:  # what was read before is not there any more
                self._begin_anew()
                added, anew = self._read(status.st_size) or NOTHING, True
        except OSError:
            return NOTHING
        if not added.more:
            self._seen = seen
        return added._replace(anew=anew)

    def _begin_anew(self) -> Added:
        had = self._offset > 0
        self._offset, self._tail, self._seen = 0, b"", None
        return Added(b"", had, False)

    def _read(self, size: int) -> Added | None:
        """Whole lines up to the size that the file had; None if it is another one than was read."""
        with self.path.open("rb") as file:
            file.seek(self._offset - len(self._tail))
            if file.read(len(self._tail)) != self._tail:
                return None
            content = file.read(min(_PART, size - self._offset))
            while b"\n" not in content and self._offset + len(content) < size:  # a very long line
                content += file.read(_PART)
        lines = content[: content.rfind(b"\n") + 1]
        self._offset += len(lines)
        self._tail = (self._tail + lines)[-_TAIL:]
        return Added(lines, False, bool(lines) and self._offset + len(content) - len(lines) < size)
