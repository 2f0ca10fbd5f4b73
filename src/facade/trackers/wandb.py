"""Weights & Biases: one W&B run per run; WANDB_MODE=offline keeps everything on this machine."""

from __future__ import annotations

import hashlib

from facade.core.types import Row
from facade.experiment.config import Experiment
from facade.trackers.base import Tracker


class WeightsAndBiases(Tracker):
    """The experiment as the run's config, numbers logged with the round as step."""

    def open(self, experiment: Experiment, done: int) -> None:
        import wandb

        mark = f"{self.run_dir.resolve()} {experiment.hash}"
        self._run = wandb.init(
            project=experiment.name,
            name=self.run_dir.name,
            id=hashlib.sha256(mark.encode()).hexdigest()[:16],
            resume="allow",
            config=experiment.model_dump(),
            dir=str(self.run_dir),
        )

    def log(self, values: dict[str, float], step: int) -> None:
        self._run.log(values, step=step)

    def close(self, summary: Row) -> None:
        self._run.summary["model_sha256"] = summary["model_sha256"]
        self._run.finish()
