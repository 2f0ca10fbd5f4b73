"""Stop and go: what a run needs to continue, to the bit, as if nothing had happened.

A checkpoint holds the state of all nodes at the start of a round, as safetensors, and how long the
run's files were at that moment, with their SHA-256: whatever was appended later is cut off and computed again. It does
not know how nodes are split over shards or threads.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from facade.core import tree
from facade.core.tree import Params
from facade.core.types import Ids, Row
from facade.errors import RunDirectoryError
from facade.files.growing_file import Mark
from facade.runs.run_directory import RunDirectory
from facade.runs.saved_states import ROWS, Facts, SavedStates
from facade.runs.state_files import PiecewiseTree

FILES = (ROWS, "timings.jsonl")
"""What a run appends to, and a checkpoint cuts back; without the rows before it, none can be continued."""


@dataclass(frozen=True)
class Checkpoint:
    """A run at the start of a round."""

    round: int
    state: Params
    """[n, ...] the state of all nodes, flat; read from the disk when it is used."""
    lengths: dict[str, int]
    """Bytes of every file of FILES."""
    seconds: float
    """Computing time so far."""
    sha256: dict[str, str] = field(default_factory=dict)
    """Of every file of FILES, up to its length, and of those that describe the run; empty in versions without it."""
    environment: Row | None = None
    """What environment.json said."""

    def mark_of(self, name: str) -> Mark:
        """How far a file of FILES had grown."""
        return Mark(self.lengths[name], self.sha256.get(name))

    def start_of(self, nodes: Ids) -> Start:
        """Where some nodes continue."""
        rows = torch.from_numpy(nodes)
        return Start(self.round, {name: leaf[rows] for name, leaf in self.state.items()})


class Start(NamedTuple):
    """Where some nodes continue."""

    round: int
    state: Params
    """[S, ...] flat."""

    def unflattened(self, template: Any) -> tuple[int, Any]:
        """(round, state) as `engine.play` takes them; the template is a state of that structure and those shapes."""
        if _forms(self.state) != _forms(tree.flatten(template)):
            raise RunDirectoryError(
                "the checkpoint holds another state than the algorithm keeps: its code has changed since;"
                " go back to that code, or start again in another directory"
            )
        return self.round, tree.unflatten(self.state, template)


def _forms(leaves: Params) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {name: (leaf.shape, leaf.dtype) for name, leaf in leaves.items()}


class Checkpoints:
    """The checkpoints of a run directory, the newest two."""

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory
        self._states = SavedStates(directory, 2, _rows_before)

    def save(self, round: int, state: PiecewiseTree, seconds: float) -> None:
        """Store the state of all nodes at the start of a round; rows made before it are written."""
        marks = {name: self._directory.mark(name) for name in FILES}
        facts = {
            "round": round,
            "lengths": {name: mark.length for name, mark in marks.items()},
            "seconds": seconds,
            "sha256": {**self._directory.written, **{name: mark.sha256 for name, mark in marks.items()}},
            "environment": self._directory.environment,
        }
        self._states.save(round, state, facts)

    def restore(self) -> Checkpoint | None:
        """The newest checkpoint that is whole, with the run's files cut back to it; None if there is
        nothing to continue."""
        saved = self._states.newest()
        if saved is None:
            if self._states.rounds:
                warnings.warn("no checkpoint is left to continue from; starting again from the beginning", stacklevel=2)
            return None
        checkpoint = Checkpoint(state=saved.state, **saved.facts)
        self._directory.expect({name: seal for name, seal in checkpoint.sha256.items() if name not in FILES})
        for name, length in checkpoint.lengths.items():
            whole = self._directory.growing(name).begins_with(checkpoint.mark_of(name))
            self._directory.cut(name, length if whole or name == ROWS else 0)
            if not whole:  # of timings, some may be lost, and nothing depends on them
                warnings.warn(f"{self._directory.path / name} is cut off or damaged; it is begun anew", stacklevel=2)
        return checkpoint

    @property
    def newest_round(self) -> int:
        """Rounds that need not be computed again, if the newest checkpoint is good."""
        return max(self._states.rounds, default=0)

    def remove(self) -> None:
        """A complete run needs none."""
        self._states.remove()


def _rows_before(facts: Facts) -> Mark:
    return Mark(int(facts["lengths"][ROWS]), facts.get("sha256", {}).get(ROWS))
