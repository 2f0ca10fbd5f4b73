"""Files that survive a crash at any moment.

A file is written under a temporary name of its own, synced, renamed over the old one, and its directory is synced:
afterwards there is the old file or the new one, never half of each. A `Store` keeps the newest few of a series
of such files, each with a checksum, so that damage is noticed and the one before it is used.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import secrets
import struct
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple

from facade.errors import StorageError

_FOOTER = struct.Struct("<8sQ32s")
"""At the end of a stored file: a mark, the length of the content, its SHA-256."""
_MARK = b"facade-1"
_PIECE = 1 << 20
_TEMPORARY = ".tmp"
SHARED, PRIVATE = 0o666, 0o600
"""Who may read a new file, by its mode: whoever the umask lets, or its owner alone. The umask may forbid more."""

Buffer = bytes | memoryview


def replace(path: Path, content: bytes, mode: int = SHARED) -> None:
    """Make `content` the content of `path` in one step; its directory is made."""
    write(path, [content], mode)


def replace_json(path: Path, content: Any, mode: int = SHARED) -> None:
    """`replace` by JSON that people can read."""
    replace(path, (json.dumps(content, indent=1) + "\n").encode(), mode)


def write(path: Path, parts: Iterable[Buffer], mode: int = SHARED) -> None:
    """Make `parts`, one after the other, the content of `path` in one step; its directory is made."""
    with replacing(path, mode) as temporary, temporary.open("wb") as file:
        for part in parts:
            file.write(part)


@contextlib.contextmanager
def replacing(path: Path, mode: int = SHARED) -> Iterator[Path]:
    """The path of a temporary file for the with-block to write; it becomes `path` in one step when all went well, and
    vanishes otherwise. No two writers share one, and whoever ends last has written the file."""
    if not path.name:
        raise StorageError(f"{path} could not be written: it is a directory; name a file")
    # Not by the module tempfile: its files can be read by their owner alone.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}{_TEMPORARY}")
    try:
        make_directory(path.parent, mode)
        if mode == PRIVATE:
            os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT, PRIVATE))
        yield temporary
        put_in_place(temporary, path)
    except OSError as error:
        raise StorageError(f"{path} could not be written: {error.strerror}; what was there is unchanged") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def make_directory(path: Path, mode: int = PRIVATE) -> None:
    """Make a directory, if there is none, for files of that mode; those above it are for others too."""
    path.mkdir(parents=True, exist_ok=True, mode=0o700 if mode == PRIVATE else 0o777)


def appending(path: Path) -> FileIO:
    """A private file, which is made if there is none, to add to its end at once; OSError where the system refuses."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, PRIVATE), "ab", buffering=0)


def put_in_place(complete: Path, path: Path) -> None:
    """Give a complete file beside `path` that name, in one step; OSError where the system refuses."""
    _fsync(complete)
    os.replace(complete, path)
    _fsync(path.parent)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Inside the with-block, what the system says against writing a file or directory is a StorageError."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"{path} could not be written: {error.strerror}; mend that and continue; what was complete is kept"
        ) from error


def append(path: Path, content: bytes, length: int | None = None) -> None:
    """Add to the end of a private file, all or nothing: where the disk takes a part, that is cut off again, down to the
    file's `length` before, if it is known."""
    with writing(path), appending(path) as file:
        before = os.stat(path).st_size if length is None else length
        try:
            left = memoryview(content)
            while left:
                left = left[file.write(left) :]
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(before)
            raise


def sync(path: Path) -> None:
    """Wait until a file, or the names in a directory, are on the disk."""
    with writing(path):
        _fsync(path)


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def is_temporary(path: Path) -> bool:
    """Whether a file is being written, or is what a crash left of that: nothing that anybody reads."""
    return path.name.startswith(".") and path.suffix == _TEMPORARY


def remove_leftovers(directory: Path, but: Collection[str] = ()) -> None:
    """Remove what crashes left in a directory to which nobody else writes now; `but` are names of files to keep."""
    with contextlib.suppress(FileNotFoundError):  # there is none, or somebody else was quicker
        for path in list(directory.iterdir()):
            if is_temporary(path) and path.name not in but:
                path.unlink(missing_ok=True)


class StoredFile(NamedTuple):
    """One good file of a store."""

    number: int
    path: Path
    content: memoryview
    """The file itself, mapped into memory: it is read where it is used."""
    sha256: bytes


class Sealed(NamedTuple):
    """A file that has been stored."""

    path: Path
    length: int
    """Of its content, in bytes."""
    sha256: bytes


class Store:
    """The newest `keep` files of a numbered series in a directory of their own, and those of the older ones that
    `also` names, given the numbers of all, ascending. All of them are private."""

    def __init__(
        self, directory: Path, keep: int = 2, also: Callable[[list[int]], Collection[int]] = lambda numbers: ()
    ) -> None:
        self.directory = directory
        self.keep = keep
        self._also = also

    @property
    def numbers(self) -> list[int]:
        """What is stored, good or damaged, ascending."""
        return [int(path.stem) for path in self._files()]

    def save(self, number: int, content: bytes) -> Path:
        """Store the content under a number. Files with higher numbers go: they belong to a
        continuation that was given up; so do the oldest, beyond the number to keep."""
        return self.write(number, [content]).path

    def write(self, number: int, parts: Iterable[Buffer]) -> Sealed:
        """`save` for content that comes in parts, one after the other."""
        path, digest, length = self.directory / f"{number:09d}.saved", hashlib.sha256(), 0

        def with_footer() -> Iterator[Buffer]:
            nonlocal length
            for piece in _pieces(parts):
                digest.update(piece)
                length += len(piece)
                yield piece
            yield _FOOTER.pack(_MARK, length, digest.digest())

        write(path, with_footer(), PRIVATE)
        remove_leftovers(self.directory)
        older = [p for p in self._files() if p.name <= path.name]
        also = self._also([int(p.stem) for p in older])
        wanted = {*older[-self.keep :], *(p for p in older if int(p.stem) in also)}
        for unwanted in set(self._files()) - wanted:
            unwanted.unlink(missing_ok=True)
        return Sealed(path, length, digest.digest())

    def newest_first(self) -> Iterator[StoredFile]:
        """Good files, the newest first. Of a damaged one a warning names the file and what is wrong."""
        for path in reversed(self._files()):
            stored = _mapped(path)
            damage = _damage(stored)
            if damage is None:
                sha256 = _FOOTER.unpack(stored[-_FOOTER.size :])[2]
                yield StoredFile(int(path.stem), path, stored[: -_FOOTER.size], sha256)
            else:
                warnings.warn(f"{path} is damaged ({damage}) and not used; going back to the one before", stacklevel=2)

    def remove(self) -> None:
        """Remove all files and the directory, if nothing else is in it."""
        remove_leftovers(self.directory)
        with contextlib.suppress(FileNotFoundError):  # there is none, or somebody else was quicker
            for path in list(self.directory.glob("*.saved")):
                path.unlink(missing_ok=True)
            if not any(self.directory.iterdir()):
                self.directory.rmdir()

    def _files(self) -> list[Path]:
        """By ascending number."""
        return sorted(p for p in self.directory.glob("*.saved") if p.stem.isdecimal())


def _pieces(parts: Iterable[Buffer]) -> Iterator[Buffer]:
    """The parts in small pieces, which are in the processor's cache still when they are written after hashing."""
    for part in parts:
        for start in range(0, len(part), _PIECE):
            yield memoryview(part)[start : start + _PIECE]


def _mapped(path: Path) -> memoryview:
    """A file's content; writing to it changes memory alone."""
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))


def _damage(stored: memoryview) -> str | None:
    """What is wrong with a stored file; None if it is whole."""
    if len(stored) < _FOOTER.size:
        return "it is cut off"
    mark, length, digest = _FOOTER.unpack(stored[-_FOOTER.size :])
    content = stored[: -_FOOTER.size]
    if mark != _MARK or length != len(content):
        return "it is cut off or overwritten"
    return None if hashlib.sha256(content).digest() == digest else "its checksum is wrong"
