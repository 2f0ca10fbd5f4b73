"""Runs an experiment where its [runtime] section says."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from facade.data.federation import Federation
from facade.errors import ExperimentError
from facade.experiment.config import Experiment
from facade.runs.result import Result
from facade.runtimes import local
from facade.runtimes.recorder import Progress


def run(
    experiment: Experiment | str | Path | Mapping[str, Any],
    out: str | Path | None = None,
    *,
    resume: bool = False,
    federation: Federation | None = None,
    progress: Progress | bool = True,
    address: str | None = None,
) -> Result:
    """Run an experiment (or that of a TOML file, or of nested dicts) in this process, or on a Ray cluster (runtime.name
    = "ray"; `address` of one that runs already); with `out`, write a run directory.

    With `resume`, a run that the directory holds is continued from its newest checkpoint, to the
    same bits as if it had never stopped and wherever it was begun; a complete one is loaded.
    `progress`: whether a bar is shown, in a terminal or a notebook; or someone else who watches.
    """
    experiment = _described(experiment)
    if federation is not None and experiment.data.source != "given":
        raise ExperimentError(
            f"a federation is given, but the experiment's data.source = '{experiment.data.source}' names others;"
            " use federation.section as the experiment's [data]"
        )
    if experiment.runtime.name != "ray" and address is not None:
        raise ExperimentError(f"address {address} is that of a Ray cluster; set runtime.name = 'ray', or drop it")
    with _watching(progress) as watcher:
        if experiment.runtime.name == "ray":
            from facade.runtimes.ray import cluster

            return cluster.run(experiment, out, resume=resume, federation=federation, progress=watcher, address=address)
        return local.run(experiment, out, resume=resume, federation=federation, progress=watcher)


def _described(experiment: object) -> Experiment:
    """The experiment, however it was given."""
    if isinstance(experiment, Experiment):
        return experiment
    if isinstance(experiment, str | Path):
        return Experiment.load(experiment)
    if isinstance(experiment, Mapping):
        return Experiment.of(experiment)
    raise ExperimentError(
        f"a {type(experiment).__name__} is no experiment; give an Experiment, the path of a TOML file, or nested dicts"
    )


@contextlib.contextmanager
def _watching(progress: Progress | bool) -> Iterator[Progress | None]:
    """Who watches the run."""
    if not isinstance(progress, bool):
        yield progress
    elif progress:
        from facade.runtimes.bar import shown_bar

        with shown_bar() as bar:
            yield bar
    else:
        yield None
