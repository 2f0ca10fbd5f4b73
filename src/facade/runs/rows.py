"""The facts of a run, as its rows.jsonl holds them, or rows.jsonl.gz where only facts are kept."""

from __future__ import annotations

import contextlib
import gc
import gzip
import itertools
import warnings
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import overload

from facade.core.types import Row
from facade.errors import RunDirectoryError
from facade.files import json_lines, seals

KINDS = ("round", "evaluation", "final")
"""Kinds of rows: notes after each round, tests at evaluations, tests after the final exchange."""


def in_order(rows: list[Row]) -> list[Row]:
    """Rows of several shards as one shard would have written them."""
    return sorted(rows, key=lambda row: (row["round"], KINDS.index(row["kind"]), row["node"]))


def by_moment(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Rows, which are in order, of one round, evaluation or final exchange after the other."""
    for _, moment in itertools.groupby(rows, key=lambda row: (row["round"], row["kind"])):
        yield list(moment)


@contextlib.contextmanager
def without_collecting() -> Iterator[None]:
    """Inside the with-block, Python does not look for garbage in cycles: rows have none, and while many of them are
    read, the search takes longer than the reading."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class RowsFile(Sequence[Row]):
    """The rows of a run, read from the file whenever they are asked for and never all kept; where the SHA-256 of the
    file is known, it is checked before. A half-written last row, as a crash leaves one, is left out with a warning."""

    def __init__(self, path: Path, sha256: str | None = None) -> None:
        self.path = path
        self._sha256 = sha256

    def check(self) -> None:
        """DamagedFileError unless the file is as it was written, so far as that is known."""
        if self._sha256 is not None:
            seals.check(self.path, seals.sha256_of(self.path), self._sha256)

    def __iter__(self) -> Iterator[Row]:
        for number, line in enumerate(self._lines(), 1):
            if not line.endswith(b"\n"):
                warnings.warn(f"{self.path}: the last row is half-written and ignored", stacklevel=2)
                return
            yield self._row(number, line)

    def _lines(self) -> Iterator[bytes]:
        self.check()  # apart, for the first row must not be used before the last is known to be whole
        opened = gzip.open if self.path.suffix == ".gz" else open
        try:
            with opened(self.path, "rb") as file:
                yield from file
        except (OSError, EOFError, zlib.error) as error:
            reason = getattr(error, "strerror", None) or f"it is damaged ({error})"
            raise RunDirectoryError(f"{self.path} cannot be read: {reason}") from None

    def _row(self, number: int, line: bytes) -> Row:
        try:
            return json_lines.decoded(line)
        except ValueError as error:
            raise RunDirectoryError(f"{self.path}, line {number} is not a row ({error}); the file is damaged") from None

    def __len__(self) -> int:
        return sum(line.endswith(b"\n") for line in self._lines())  # list() asks for it, too

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        return list(iter(self))[index]

    def __reversed__(self) -> Iterator[Row]:
        return reversed(list(iter(self)))  # row by row, each would be a walk through the file

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]
