"""Computing many runs: one after the other here, or several at a time in worker processes."""

from __future__ import annotations

import contextlib
import functools
import json
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from facade.runs.stop_signals import StopSignals
from facade.sweep.jobs import Job
from facade.sweep.worker import Event, compute

Tell = Callable[[Job, Event], None]
Compute = Callable[[Job, Callable[[Event], None]], Event]
"""Computes one run, telling its progress; the event that it returns says how the run ended."""


@dataclass(frozen=True)
class Ended:
    """What became of a run."""

    job: Job
    ended: str
    """finished, failed or stopped."""
    reason: str = ""


def compute_all(jobs: Sequence[Job], at_once: int, tell: Tell, stop_signals: StopSignals) -> Iterator[Ended]:
    """Compute the runs, `at_once` at a time, telling their progress. SIGINT and SIGTERM ring the stop signals and
    end it once every run under way has written a checkpoint: those end as "stopped", the rest is not
    begun."""
    if at_once > 1:
        yield from _in_processes(jobs, min(at_once, len(jobs)), tell, stop_signals)
        return
    from facade.runtimes import local

    run = functools.partial(local.run, stop_signals=stop_signals)
    with stop_signals.listening():
        for job in jobs:
            if stop_signals.received is not None:
                return
            yield Ended(job, **compute(job.experiment, job.path, functools.partial(tell, job), run))


def spread(
    jobs: Sequence[Job],
    computers: Sequence[contextlib.AbstractContextManager[Compute]],
    tell: Tell,
    stop_signals: StopSignals,
) -> Iterator[Ended]:
    """Compute the runs in threads, one per computer, each run by whoever is free. Nothing is begun once the
    stop signals have come. Whatever goes wrong in a thread fails one run: whoever waits is always told its end."""
    todo, lock = iter(jobs), threading.Lock()
    events: queue.SimpleQueue[tuple[Job, Event] | None] = queue.SimpleQueue()

    def following() -> Job | None:
        with lock:
            return None if stop_signals.received is not None else next(todo, None)

    def told(job: Job, event: Event) -> None:
        events.put((job, event))

    def lead(computer: contextlib.AbstractContextManager[Compute]) -> None:
        try:
            with computer as compute_one:
                while (job := following()) is not None:
                    try:
                        told(job, compute_one(job, functools.partial(told, job)))
                    except BaseException as error:  # also SystemExit of a user's own code
                        told(job, {"ended": "failed", "reason": f"{type(error).__name__}: {error}"})
        finally:
            events.put(None)

    leaders = [threading.Thread(target=lead, args=(computer,), daemon=True) for computer in computers]
    for leader in leaders:
        leader.start()
    for _ in leaders:
        while (happened := events.get()) is not None:
            job, event = happened
            if "ended" in event:
                yield Ended(job, **event)
            else:
                tell(job, event)


def _in_processes(jobs: Sequence[Job], size: int, tell: Tell, stop_signals: StopSignals) -> Iterator[Ended]:
    slots = [_Slot(stop_signals) for _ in range(size)]

    def stop(signal: int) -> None:
        for slot in slots:
            slot.stop()

    with stop_signals.listening(stop):
        try:
            yield from spread(jobs, slots, tell, stop_signals)
        finally:
            for slot in slots:
                slot.clear()


class _Slot:
    """Where one worker process after the other computes runs: one that dies fails one run, and another
    takes its place."""

    def __init__(self, stop_signals: StopSignals) -> None:
        self._stop_signals = stop_signals
        self._worker: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """There is nothing left to do: the worker may go."""
        if self._worker is not None and self._worker.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # it has died with a request unread
                self._worker.stdin.close()

    def __call__(self, job: Job, tell: Callable[[Event], None]) -> Event:
        """Compute one run."""
        try:
            worker = self._hired()
        except OSError as error:
            return {"ended": "failed", "reason": f"no process could be started for it: {error.strerror}"}
        request = {"path": str(job.path), "experiment": job.experiment.model_dump()}
        try:
            print(json.dumps(request), file=worker.stdin, flush=True)
            for line in worker.stdout or ():
                event: Event = json.loads(line)
                if "ended" in event:
                    return event
                tell(event)
        except (BrokenPipeError, ValueError):  # it died, perhaps in the middle of a line
            worker.kill()
        code = worker.wait()
        reason = f"its process ended with code {code} (killed, or out of memory?)"
        return (
            {"ended": "stopped"} if self._stop_signals.received is not None else {"ended": "failed", "reason": reason}
        )

    def stop(self) -> None:
        """Let the run under way write a checkpoint and end."""
        if self._worker is not None:
            self._worker.terminate()

    def clear(self) -> None:
        """End the worker, whatever it does, and wait for its end."""
        if self._worker is not None:
            self._worker.kill()
            with contextlib.suppress(BrokenPipeError), self._worker:
                pass  # closes its pipes

    def _hired(self) -> subprocess.Popen[str]:
        """The worker, in a session of its own: Ctrl-C reaches it through us, and once."""
        if self._worker is not None and self._worker.poll() is None:
            return self._worker
        self.clear()
        command = [sys.executable, "-m", "facade.sweep.worker"]
        pipe = subprocess.PIPE
        self._worker = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True)
        if self._stop_signals.received is not None:
            self._worker.terminate()
        return self._worker
