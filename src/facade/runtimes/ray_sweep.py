"""Whole runs spread over a Ray cluster: one worker computes each, and this process writes the files."""

from __future__ import annotations

import functools
import queue
import threading
from collections.abc import Iterator, Sequence

from facade.bell import Bell
from facade.crew import Ended, Tell
from facade.runtimes import ray_cluster
from facade.sweep import Job
from facade.worker import Event, compute


def compute_all(jobs: Sequence[Job], at_once: int, tell: Tell) -> Iterator[Ended]:
    """Compute the runs on the cluster that is connected, `at_once` at a time. SIGINT and SIGTERM end it
    as in `facade.crew`: every run under way writes a checkpoint first."""
    events: queue.SimpleQueue[tuple[Job, Event] | None] = queue.SimpleQueue()
    todo, lock, bell = iter(jobs), threading.Lock(), Bell()
    run = functools.partial(ray_cluster.run_connected, shards=1, cpus=1, bell=bell)

    def lead() -> None:
        while True:
            with lock:
                job = None if bell.rung else next(todo, None)
            if job is None:
                break
            events.put((job, compute(job.experiment, job.path, lambda event, job=job: events.put((job, event)), run)))  # type: ignore[misc]
        events.put(None)

    leaders = [threading.Thread(target=lead, daemon=True) for _ in range(min(at_once, len(jobs)))]
    with bell.listening():
        for leader in leaders:
            leader.start()
        for _ in leaders:
            while (happened := events.get()) is not None:
                job, event = happened
                if "ended" in event:
                    yield Ended(job, **event)
                else:
                    tell(job, event)
