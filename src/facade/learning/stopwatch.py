"""Where the time of a run goes, by phase. Clock values never enter a run's rows."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping


class Stopwatch:
    """Seconds per phase, summed since the last `lap`; what a phase inside another takes is counted once."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._inside: list[float] = []
        """Per phase under way, the outermost first: seconds of the phases inside it."""

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time inside the with-block under `name`."""
        start = time.perf_counter()
        self._inside.append(0.0)
        try:
            yield
        finally:
            taken = time.perf_counter() - start
            self._seconds[name] += taken - self._inside.pop()
            if self._inside:
                self._inside[-1] += taken

    def add(self, seconds: Mapping[str, float]) -> None:
        """Count what another stopwatch counted."""
        for name, spent in seconds.items():
            self._seconds[name] += spent

    def lap(self) -> dict[str, float]:
        """The sums so far; counting starts again at zero."""
        seconds = dict(self._seconds)
        self._seconds.clear()
        return seconds
