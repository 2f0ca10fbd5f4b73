"""Computing many runs: one after the other here, or several at a time in worker processes."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from facade.bell import Bell
from facade.sweep import Job
from facade.worker import Event, compute

Tell = Callable[[Job, Event], None]


@dataclass(frozen=True)
class Ended:
    """What became of a run."""

    job: Job
    ended: str
    """finished, failed or stopped."""
    reason: str = ""


def compute_all(jobs: Sequence[Job], at_once: int, tell: Tell) -> Iterator[Ended]:
    """Compute the runs, `at_once` at a time, telling their progress. SIGINT and SIGTERM end it once
    every run under way has written a checkpoint: those end as "stopped", the rest is not begun."""
    if at_once > 1:
        yield from _Crew(jobs, min(at_once, len(jobs)), tell).work()
        return
    for job in jobs:
        ended = Ended(job, **compute(job.experiment, job.path, lambda event, job=job: tell(job, event)))  # type: ignore[misc]
        yield ended
        if ended.ended == "stopped":
            return


class _Crew:
    """Worker processes, each led by a thread that hands it one job after the other. A worker that dies
    fails one run, and another takes its place."""

    def __init__(self, jobs: Sequence[Job], size: int, tell: Tell) -> None:
        self._tell = tell
        self._size = size
        self._todo = iter(jobs)
        self._lock = threading.Lock()
        self._events: queue.SimpleQueue[tuple[Job, Event] | None] = queue.SimpleQueue()
        self._workers: list[subprocess.Popen[str]] = []
        self._stopping = False

    def work(self) -> Iterator[Ended]:
        leaders = [threading.Thread(target=self._lead, daemon=True) for _ in range(self._size)]
        try:
            with Bell().listening(self._stop):
                for leader in leaders:
                    leader.start()
                for _ in leaders:
                    while (happened := self._events.get()) is not None:
                        job, event = happened
                        if "ended" in event:
                            yield Ended(job, **event)
                        else:
                            self._tell(job, event)
        finally:
            for worker in self._workers:
                worker.kill()
                with contextlib.suppress(BrokenPipeError), worker:
                    pass  # closes its pipes and waits for its end

    def _stop(self, signal: int) -> None:
        """Begin nothing new, and let the runs under way write a checkpoint."""
        self._stopping = True
        for worker in self._workers:
            worker.terminate()

    def _lead(self) -> None:
        worker: subprocess.Popen[str] | None = None
        while (job := self._next()) is not None:
            worker = worker if worker is not None and worker.poll() is None else self._hire()
            for event in self._ask(worker, job):
                self._events.put((job, event))
        if worker is not None and worker.stdin is not None:
            worker.stdin.close()
        self._events.put(None)

    def _next(self) -> Job | None:
        with self._lock:
            return None if self._stopping else next(self._todo, None)

    def _hire(self) -> subprocess.Popen[str]:
        """A new worker, in a session of its own: Ctrl-C reaches it through us, and once."""
        command = [sys.executable, "-m", "facade.worker"]
        pipe = subprocess.PIPE
        worker = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True)
        self._workers.append(worker)
        if self._stopping:
            worker.terminate()
        return worker

    def _ask(self, worker: subprocess.Popen[str], job: Job) -> Iterator[Event]:
        """The events of one job, the last of which says how it ended."""
        request = {"path": str(job.path), "experiment": job.experiment.model_dump()}
        try:
            print(json.dumps(request), file=worker.stdin, flush=True)
            for line in worker.stdout or ():
                event: Event = json.loads(line)
                yield event
                if "ended" in event:
                    return
        except BrokenPipeError:
            pass
        code = worker.wait()
        reason = f"its process ended with code {code} (killed, or out of memory?)"
        yield {"ended": "stopped"} if self._stopping else {"ended": "failed", "reason": reason}
