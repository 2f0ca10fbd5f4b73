"""Signals that ask a process to stop, heeded when it suits whoever is at work."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


class StopSignals:
    """Notes when SIGINT or SIGTERM arrives, or the terminal is closed (SIGHUP, which nohup keeps away), so that a
    run can finish what it is doing; a second Ctrl-C does not wait."""

    def __init__(self) -> None:
        self.received: int | None = None
        """Number of the first signal; None: none has come."""

    @contextlib.contextmanager
    def listening(self, then: Callable[[int], None] | None = None) -> Iterator[StopSignals]:
        """Take signals inside the with-block, and call `then` with the first one's number. Only the
        main thread can; elsewhere none is received."""
        self._then = then
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            numbers.append(signal.SIGHUP)
        before = {number: signal.signal(number, self._receive) for number in numbers}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            raise KeyboardInterrupt
        self.received = number
        if self._then is not None:
            self._then(number)
