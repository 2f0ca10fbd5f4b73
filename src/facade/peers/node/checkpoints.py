"""What a site continues from: its state at the start of a round, and how it had met its peers by then."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from facade.core.tree import Params
from facade.errors import FacadeError
from facade.files.growing_file import Mark
from facade.runs import state_files
from facade.runs.run_directory import RunDirectory
from facade.runs.saved_states import ROWS, SavedStates

NEWEST = 3
"""Checkpoints that a site keeps to go on from after a crash, the newest."""
EVERY = 10
"""Checkpoints of rounds that are a multiple of this are kept longer than others: sites can go back to them."""
MOST = 10
"""So many of those, the newest."""


class LostCheckpointError(FacadeError):
    """A run has begun, and there is nothing to continue it from."""


@dataclass(frozen=True)
class SiteCheckpoint:
    """A node at the start of a round."""

    round: int
    epoch: int
    """Of the list that the state was made under: it is in the order of that list's members."""
    state: Params
    """[1, ...], flat."""
    ledger: dict[str, Any]
    rows: int
    """Bytes of rows.jsonl at that moment."""
    rows_sha256: str | None = None
    """Of these bytes; None in versions without it."""
    surroundings: dict[str, str] = field(default_factory=dict)
    """The SHA-256 of what the run depends on beside its own files: node.toml, and code of the site's own."""


class SiteCheckpoints:
    """The newest three checkpoints of a node, and of those of every tenth round the newest ten."""

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory
        self._states = SavedStates(
            directory, NEWEST, lambda facts: Mark(int(facts["rows"]), facts.get("rows_sha256")), spaced
        )
        self.surroundings: dict[str, str] = {}
        """What checkpoints from now on say of them."""

    def save(self, round: int, epoch: int, state: Any, ledger: dict[str, Any]) -> None:
        """Store the state at the start of a round; rows made before it are written."""
        rows = self._directory.mark(ROWS)
        facts = {"round": round, "epoch": epoch, "ledger": ledger, "surroundings": self.surroundings}
        facts |= {"rows": rows.length, "rows_sha256": rows.sha256}
        self._states.save(round, state_files.in_one_piece(state), facts)

    def newest(self) -> SiteCheckpoint | None:
        """The newest one that is whole, and whose rows are, of those from which a site can go on by itself."""
        saved = self._states.newest(self._is_recent)
        return None if saved is None else SiteCheckpoint(state=saved.state, **saved.facts)

    def newest_up_to(self, round: int) -> SiteCheckpoint | None:
        """The newest one, of a round or an earlier one, that is whole, and whose rows are: to go back to."""
        saved = self._states.newest(lambda kept: kept <= round)
        return None if saved is None else SiteCheckpoint(state=saved.state, **saved.facts)

    def _is_recent(self, round: int) -> bool:
        """Whether a checkpoint is one of the newest. From those that are kept to go back to nobody goes on alone:
        others have used the messages of the rounds after them."""
        rounds = self._states.rounds
        return round in rounds[-NEWEST:] and round > rounds[-1] - EVERY

    def all_whole(self) -> Iterator[SiteCheckpoint]:
        """Those that are whole, the newest first."""
        return (SiteCheckpoint(state=saved.state, **saved.facts) for saved in self._states.all_whole())

    def put_back(self, round: int, saved: SiteCheckpoint) -> None:
        """Make a checkpoint the newest one, as the start of a round: those of later rounds go."""
        facts = {"round": round, "epoch": saved.epoch, "ledger": saved.ledger, "surroundings": saved.surroundings}
        facts |= {"rows": saved.rows, "rows_sha256": saved.rows_sha256}
        self._states.save(round, state_files.in_one_piece(saved.state), facts)

    @property
    def rounds(self) -> list[int]:
        """Of the checkpoints that are there, good or damaged, ascending."""
        return self._states.rounds

    def what_is_missing(self) -> str:
        """What a begun run lacks that has no usable checkpoint, in words."""
        return self._states.what_is_missing(self._is_recent)

    def remove(self) -> None:
        """Begin anew."""
        self._states.remove()

    @property
    def begun(self) -> bool:
        """Whether there is any checkpoint, good or damaged."""
        return bool(self._states.rounds)


def spaced(rounds: list[int]) -> list[int]:
    """Of the rounds of all checkpoints, ascending, those whose checkpoints are kept longer than others."""
    return [round for round in rounds if round % EVERY == 0][-MOST:]
