"""What a site keeps of its run on disk, so that it can go on after a crash."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from facade.peers.node.checkpoints import LostCheckpointError, SiteCheckpoint, SiteCheckpoints
from facade.peers.node.outgoing import Outgoing
from facade.peers.node.recovery import Recovery
from facade.peers.node.shortages import Shortages
from facade.runs.run_directory import RunDirectory
from facade.runs.saved_states import ROWS


@dataclass(frozen=True)
class SiteFiles:
    """The files of a site's run directory that a restart depends on."""

    directory: RunDirectory
    checkpoints: SiteCheckpoints
    outgoing: Outgoing
    recovery: Recovery

    @classmethod
    def open(cls, run: Path, window: int, shortages: Shortages) -> SiteFiles:
        """Those of a run directory; messages of so many rounds are kept."""
        directory, outgoing = RunDirectory(run), Outgoing(run / "outgoing", window)
        return cls(directory, SiteCheckpoints(directory), outgoing, Recovery(run / "recovery.jsonl", shortages.outlast))

    def go_back_to(self, saved: SiteCheckpoint | None) -> None:
        """Cut off what came after a checkpoint, or the beginning, for it is played again. LostCheckpointError where a
        run has begun and has none: beginning again would take back messages that others have used."""
        if saved is None and (self.checkpoints.begun or self.outgoing.rounds or self.recovery.begun):
            published = self.outgoing.rounds
            what = f" (messages up to round {published[-1]} are published)" if published else ""
            raise LostCheckpointError(
                f"this site's run has begun{what} but cannot be continued: {self.checkpoints.what_is_missing()};"
                " restore what is missing from a copy. Without one, ask the federation's admin to remove this site and"
                f" then to add it again, and move {self.directory.path} away before it starts with the list that adds"
                " it"
            )
        self.directory.cut(ROWS, saved.rows if saved else 0)
