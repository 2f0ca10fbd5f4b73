"""The threads on which a learner computes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

R = TypeVar("R")
W = TypeVar("W")


class _Here(threading.local):
    """What is known of the calling thread."""

    is_worker = False


_here = _Here()


class WorkerThreads:
    """A number of threads that share work."""

    def __init__(self, count: int) -> None:
        self._pool = ThreadPoolExecutor(count, "learner", initializer=_begin)

    def map(self, task: Callable[[W], R], work: list[W]) -> list[R]:
        """What the task makes of each piece of work, side by side. A task that itself has work to share does it alone:
        if it waited for others, all might wait."""
        return list(map(task, work)) if inside_worker() else list(self._pool.map(task, work))


def inside_worker() -> bool:
    """Whether the calling thread is a worker."""
    return _here.is_worker


def _begin() -> None:
    # Every computation runs with one intra-op thread, also when there is one worker: sums
    # inside a layer must not depend on how many threads there are.
    torch.set_num_threads(1)
    _here.is_worker = True


def without_gradients(task: Callable[[W], R]) -> Callable[[W], R]:
    """The task with autograd off; that is a setting of a thread, so it is made inside."""

    def inner(work: W) -> R:
        with torch.no_grad():
            return task(work)

    return inner
