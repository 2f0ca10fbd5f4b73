"""States on disk at the start of rounds, each with facts about it: what checkpoints of simulations and of sites are
made of."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from facade.core.tree import Params
from facade.files.growing_file import Mark
from facade.files.store import Store
from facade.runs import state_files
from facade.runs.run_directory import RunDirectory
from facade.runs.state_files import PiecewiseTree

ROWS = "rows.jsonl"
"""Without the rows made before it, no state can be continued from."""

Facts = dict[str, Any]
"""As JSON knows them."""


Among = Callable[[int], bool]
"""Whether the state of a round is one of those asked for."""


class SavedState(NamedTuple):
    """A state that is whole."""

    path: Path
    state: Params
    """[n, ...] flat; read from the disk when it is used."""
    facts: Facts


class SavedStates:
    """The newest few states of a run directory."""

    def __init__(
        self,
        directory: RunDirectory,
        keep: int,
        rows_before: Callable[[Facts], Mark],
        also: Callable[[list[int]], Collection[int]] = lambda rounds: (),
    ) -> None:
        """`also`: which of the older ones are kept, given the rounds of all."""
        self._directory = directory
        self._store = Store(directory.path / "checkpoints", keep, also)
        self._rows_before = rows_before
        """The rows that a state counts on."""

    @property
    def rounds(self) -> list[int]:
        """Of the states that are there, whole or damaged, ascending."""
        return self._store.numbers

    def save(self, round: int, state: PiecewiseTree, facts: Facts) -> None:
        """Store a state at the start of a round; rows made before it are written."""
        self._store.write(round, state_files.file_parts(state, facts))

    def newest(self, among: Among = lambda _: True) -> SavedState | None:
        """The newest one, among some rounds, that is whole and whose rows are there; a warning names the others."""
        rows = self._directory.growing(ROWS)
        for saved in self.all_whole(among):
            mark = self._rows_before(saved.facts)
            if rows.begins_with(mark):
                return saved
            warnings.warn(
                f"{saved.path} is not used: the {mark.length} bytes of {rows.path} that it counts on are missing or"
                " damaged (their SHA-256 is another); going back to the one before",
                stacklevel=3,
            )
        return None

    def what_is_missing(self, among: Among = lambda _: True) -> str:
        """Why none of the states of some rounds can be used, in words."""
        counted_on = [self._rows_before(saved.facts).length for saved in self.all_whole(among)]
        if not counted_on:
            return f"{self._store.directory} holds no checkpoint that is whole"
        path = self._directory.path / ROWS
        there = path.stat().st_size if path.exists() else 0
        if there >= min(counted_on):
            return f"{path} is damaged within its first {min(counted_on)} bytes, on which all checkpoints count"
        return f"{path} has {there} bytes, and the checkpoints count on {min(counted_on)}"

    def remove(self) -> None:
        """A complete run needs none."""
        self._store.remove()

    def all_whole(self, among: Among = lambda _: True) -> Iterator[SavedState]:
        """Those of some rounds that are whole, the newest first."""
        for stored in self._store.newest_first():
            if among(stored.number):
                state, facts = state_files.read_file(stored.content)
                yield SavedState(stored.path, state, facts)
