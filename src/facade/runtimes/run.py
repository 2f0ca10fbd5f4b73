"""Runs an experiment where its [runtime] section says."""

from __future__ import annotations

from pathlib import Path

from facade.data.federation import Federation
from facade.errors import ExperimentError
from facade.experiment.config import Experiment
from facade.runs.result import Result
from facade.runtimes import local
from facade.runtimes.recorder import Progress


def run(
    experiment: Experiment,
    out: str | Path | None = None,
    *,
    resume: bool = False,
    federation: Federation | None = None,
    progress: Progress | None = None,
    address: str | None = None,
) -> Result:
    """Run an experiment in this process, or on a Ray cluster (runtime.name = "ray"; `address` of one that
    runs already); with `out`, write a run directory.

    With `resume`, a run that the directory holds is continued from its newest checkpoint, to the
    same bits as if it had never stopped and wherever it was begun; a complete one is loaded.
    """
    if federation is not None and experiment.data.source != "given":
        raise ExperimentError(
            f"a federation is given, but the experiment's data.source = '{experiment.data.source}' names others;"
            " use federation.section as the experiment's [data]"
        )
    if experiment.runtime.name == "ray":
        from facade.runtimes.ray import cluster

        return cluster.run(experiment, out, resume=resume, federation=federation, progress=progress, address=address)
    if address is not None:
        raise ExperimentError(f"address {address} is that of a Ray cluster; set runtime.name = 'ray', or drop it")
    return local.run(experiment, out, resume=resume, federation=federation, progress=progress)
