"""Whole runs spread over a Ray cluster: one worker computes each, and this process writes the files."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence

from facade.runs.stop_signals import StopSignals
from facade.runtimes.ray import cluster
from facade.sweep.jobs import Job
from facade.sweep.process_pool import EndedJob, OnEvent, compute_in_threads
from facade.sweep.worker import Event, compute


def compute_all(jobs: Sequence[Job], at_once: int, on_event: OnEvent, stop_signals: StopSignals) -> Iterator[EndedJob]:
    """Compute the runs on the cluster that is connected, `at_once` at a time. SIGINT and SIGTERM end it
    as in `facade.sweep.process_pool`: every run under way writes a checkpoint first."""
    run = functools.partial(cluster.run_connected, shards=1, cpus=1, stop_signals=stop_signals)

    def compute_one(job: Job, on_event: Callable[[Event], None]) -> Event:
        return compute(job.experiment, job.path, on_event, run)

    slots = [contextlib.nullcontext(compute_one) for _ in range(min(at_once, len(jobs)))]
    with stop_signals.listening():
        yield from compute_in_threads(jobs, slots, on_event, stop_signals)
