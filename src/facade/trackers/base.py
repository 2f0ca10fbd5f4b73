"""What a tracker is: someone who watches a run and passes numbers on."""

from __future__ import annotations

import contextlib
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path

from facade.core.types import Row
from facade.errors import ExperimentError
from facade.experiment.config import Experiment
from facade.runtimes.recorder import Progress, Quiet


class Tracker(Quiet, ABC):
    """Writes the numbers of one run to another tool. A resumed run continues what was written. A tool
    that fails on the way costs a warning, not the run."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self._opened = False

    @abstractmethod
    def open(self, experiment: Experiment, done: int) -> None:
        """The run begins, or continues after `done` rounds."""

    @abstractmethod
    def log(self, values: dict[str, float], step: int) -> None:
        """Write values by name for a round."""

    @abstractmethod
    def close(self, summary: Row) -> None:
        """The run is complete."""

    def start(self, experiment: Experiment, done: int) -> None:
        if self._opened:  # a run that goes back to its last checkpoint begins again
            return
        try:
            self.open(experiment, done)
        except Exception as error:
            raise ExperimentError(f"{type(self).__name__} cannot be used: {error}") from error
        self._opened = True

    def evaluated(self, done: int, judged: Row, final: bool) -> None:
        prefix = "final/" if final else ""
        with self._tolerant():
            self.log({prefix + name: value for name, value in numbers(judged).items()}, done)

    def finish(self, summary: Row) -> None:
        with self._tolerant():
            self.close(summary)

    @contextlib.contextmanager
    def _tolerant(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            warnings.warn(f"{type(self).__name__} did not take some numbers: {error}", stacklevel=2)


def numbers(judged: Row) -> dict[str, float]:
    """The numbers of an evaluation by name; accuracies of clusters as `accuracy/cluster-0`, ..., or of sites, where
    clusters are not known, as `accuracy/site-0`, ..."""
    values = {f"accuracy/cluster-{c}": share for c, share in enumerate(judged.get("clusters", []))}
    values |= {f"accuracy/site-{i}": share for i, share in enumerate(judged.get("sites", {}).values())}
    for name, value in judged.items():
        if isinstance(value, int | float):
            values[f"accuracy/{name}" if name in ("all", "worst_node") else name] = float(value)
    return values


class Several:
    """Passes everything on to several watchers."""

    def __init__(self, watchers: Sequence[Progress]) -> None:
        self._watchers = watchers

    def start(self, experiment: Experiment, done: int) -> None:
        for watcher in self._watchers:
            watcher.start(experiment, done)

    def round(self, done: int, rounds: int) -> None:
        for watcher in self._watchers:
            watcher.round(done, rounds)

    def evaluated(self, done: int, judged: Row, final: bool) -> None:
        for watcher in self._watchers:
            watcher.evaluated(done, judged, final)

    def finish(self, summary: Row) -> None:
        for watcher in self._watchers:
            watcher.finish(summary)
