"""MLflow: one MLflow run per run, on the server that MLFLOW_TRACKING_URI names, or local files."""

from __future__ import annotations

from facade.core.types import Row
from facade.experiment.config import Experiment
from facade.experiment.decisive_settings import decisive_settings
from facade.trackers.base import Tracker

_TAG = "facade.run"


class MLflow(Tracker):
    """The experiment's settings as parameters, one metric per number and evaluation."""

    def open(self, experiment: Experiment, done: int) -> None:
        from mlflow import MlflowClient

        self._client = MlflowClient()
        place = self._client.get_experiment_by_name(experiment.name)
        home = place.experiment_id if place else self._client.create_experiment(experiment.name)
        mark = f"{self.run_dir.resolve()} {experiment.hash}".replace("'", "_")  # which its filters cannot quote
        earlier = self._client.search_runs([home], f"tags.`{_TAG}` = '{mark}'") if done else []
        if earlier:
            self._run = earlier[0].info.run_id
            return
        run = self._client.create_run(home, tags={_TAG: mark}, run_name=self.run_dir.name)
        self._run = run.info.run_id
        for key, value in decisive_settings(experiment.model_dump()).items():
            self._client.log_param(self._run, key, value)

    def log(self, values: dict[str, float], step: int) -> None:
        for name, value in values.items():
            self._client.log_metric(self._run, name, value, step=step)

    def close(self, summary: Row) -> None:
        self._client.set_tag(self._run, "model_sha256", summary["model_sha256"])
        self._client.set_terminated(self._run)
