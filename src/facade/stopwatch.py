"""Where the time of a run goes, by phase. Clock values never enter a run's rows."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping


class Stopwatch:
    """Seconds per phase, summed since the last `lap`."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time inside the with-block under `name`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[name] += time.perf_counter() - start

    def add(self, seconds: Mapping[str, float]) -> None:
        """Count what another stopwatch counted."""
        for name, spent in seconds.items():
            self._seconds[name] += spent

    def lap(self) -> dict[str, float]:
        """The sums so far; counting starts again at zero."""
        seconds = dict(self._seconds)
        self._seconds.clear()
        return seconds
