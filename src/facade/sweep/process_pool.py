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
from facade.runtimes import local
from facade.sweep.jobs import Job
from facade.sweep.worker import Event, compute

OnEvent = Callable[[Job, Event], None]
"""Is called with what happens in a run that is under way."""
Compute = Callable[[Job, Callable[[Event], None]], Event]
"""Computes one run and calls back with its progress; the event that it returns says how the run ended."""


@dataclass(frozen=True)
class EndedJob:
    """What became of a run."""

    job: Job
    ended: str
    """finished, failed, stopped, or busy: another process is computing it."""
    reason: str = ""


def compute_all(jobs: Sequence[Job], at_once: int, on_event: OnEvent, stop_signals: StopSignals) -> Iterator[EndedJob]:
    """Compute the runs, `at_once` at a time, calling `on_event` with their progress. SIGINT and SIGTERM end it once
    every run under way has written a checkpoint: those end as "stopped", the rest is not begun."""
    if at_once > 1:
        yield from _in_processes(jobs, min(at_once, len(jobs)), on_event, stop_signals)
        return
    run = functools.partial(local.run, stop_signals=stop_signals)
    with stop_signals.listening():
        for job in jobs:
            if stop_signals.received is not None:
                return
            yield EndedJob(job, **compute(job.experiment, job.path, functools.partial(on_event, job), run))


def compute_in_threads(
    jobs: Sequence[Job],
    slots: Sequence[contextlib.AbstractContextManager[Compute]],
    on_event: OnEvent,
    stop_signals: StopSignals,
) -> Iterator[EndedJob]:
    """Compute the runs in threads, one per slot, each run in whichever is free. Nothing is begun once a
    stop signal has come. Whatever goes wrong in a thread fails one run: the end of every run that began is reported."""
    todo, lock = iter(jobs), threading.Lock()
    events: queue.SimpleQueue[tuple[Job, Event] | None] = queue.SimpleQueue()

    def next_job() -> Job | None:
        with lock:
            return None if stop_signals.received is not None else next(todo, None)

    def report(job: Job, event: Event) -> None:
        events.put((job, event))

    def work(slot: contextlib.AbstractContextManager[Compute]) -> None:
        try:
            with slot as compute_one:
                while (job := next_job()) is not None:
                    try:
                        report(job, compute_one(job, functools.partial(report, job)))
                    except BaseException as error:  # also SystemExit of a user's own code
                        report(job, {"ended": "failed", "reason": f"{type(error).__name__}: {error}"})
        finally:
            events.put(None)

    threads = [threading.Thread(target=work, args=(slot,), daemon=True) for slot in slots]
    for thread in threads:
        thread.start()
    for _ in threads:
        while (message := events.get()) is not None:
            job, event = message
            if "ended" in event:
                yield EndedJob(job, **event)
            else:
                on_event(job, event)


def _in_processes(jobs: Sequence[Job], size: int, on_event: OnEvent, stop_signals: StopSignals) -> Iterator[EndedJob]:
    slots = [_Slot(stop_signals) for _ in range(size)]

    def stop(signal: int) -> None:
        for slot in slots:
            slot.stop()

    with stop_signals.listening(stop):
        try:
            yield from compute_in_threads(jobs, slots, on_event, stop_signals)
        finally:
            for slot in slots:
                slot.kill()


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

    def __call__(self, job: Job, on_event: Callable[[Event], None]) -> Event:
        """Compute one run."""
        try:
            worker = self._running_worker()
        except OSError as error:
            return {"ended": "failed", "reason": f"no process could be started for it: {error.strerror}"}
        request = {"path": str(job.path), "experiment": job.experiment.model_dump()}
        try:
            print(json.dumps(request), file=worker.stdin, flush=True)
            for line in worker.stdout or ():
                event: Event = json.loads(line)
                if "ended" in event:
                    return event
                on_event(event)
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

    def kill(self) -> None:
        """End the worker, whatever it does, and wait for its end."""
        if self._worker is not None:
            self._worker.kill()
            with contextlib.suppress(BrokenPipeError), self._worker:
                pass  # closes its pipes

    def _running_worker(self) -> subprocess.Popen[str]:
        """The worker, in a session of its own: Ctrl-C reaches it through us, and once."""
        if self._worker is not None and self._worker.poll() is None:
            return self._worker
        self.kill()
        command = [sys.executable, "-m", "facade.sweep.worker"]
        pipe = subprocess.PIPE
        self._worker = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True)
        if self._stop_signals.received is not None:
            self._worker.terminate()
        return self._worker
