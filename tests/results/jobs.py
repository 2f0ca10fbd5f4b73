"""Runs of a sweep, computed in worker processes."""

from facade.runs.stop_signals import StopSignals
from facade.sweep import process_pool
from facade.sweep.jobs import Job
from results.conftest import tiny


def jobs_of(path, *settings, count=2):
    """Runs below a directory that differ in their seed."""
    experiments = [tiny(*settings, f"seed={seed}") for seed in range(1, count + 1)]
    return [Job(experiment, path / f"run-{experiment.seed}", ()) for experiment in experiments]


def ends(jobs, tell=lambda job, event: None):
    return list(process_pool.compute_all(jobs, 2, tell, StopSignals()))
