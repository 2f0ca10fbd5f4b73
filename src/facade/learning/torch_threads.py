"""How many threads torch splits one operation over: one, wherever a run computes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import torch


class _Inside(threading.local):
    """How many of the with-blocks below the calling thread is in."""

    depth = 0


_inside = _Inside()
_busy: list[int] = []
"""For every thread that is in one of them, how many threads torch had before the first."""
_busy_lock = threading.Lock()


@contextlib.contextmanager
def one_intra_op_thread() -> Iterator[None]:
    """Keep torch from splitting single operations over threads on the calling thread: on a busy
    machine its threads wait for each other by spinning, and small operations take ten times as long.
    (New threads begin with what was set last anywhere, so of runs that overlap only the first knows what was before.)
    """
    with _busy_lock:
        before = _busy[0] if _busy else torch.get_num_threads()
        _busy.append(before)
        _inside.depth += 1
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _busy_lock:
            _busy.pop()
            _inside.depth -= 1
            if not _inside.depth:
                torch.set_num_threads(before)
