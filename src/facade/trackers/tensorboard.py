"""TensorBoard: event files in the run directory; `tensorboard --logdir runs` shows all runs."""

from __future__ import annotations

from facade.core.types import Row
from facade.experiment.config import Experiment
from facade.trackers.base import Tracker


class TensorBoard(Tracker):
    """Scalars per evaluation and the experiment as text, in RUN/tensorboard."""

    def open(self, experiment: Experiment, done: int) -> None:
        from torch.utils.tensorboard.writer import SummaryWriter

        # What was written after the checkpoint is written again: the old curve ends where this begins.
        purge = done + 1 if done else None
        self._writer = SummaryWriter(str(self.run_dir / "tensorboard"), purge_step=purge)
        if not done:
            indented = experiment.toml().replace("\n", "\n    ")
            self._writer.add_text("experiment", f"    {indented}")

    def log(self, values: dict[str, float], step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self, summary: Row) -> None:
        self._writer.close()
