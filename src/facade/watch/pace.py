"""How fast a run goes, and when it will be over."""

from __future__ import annotations

from collections import deque

_FEWEST, _MOST = 2, 40
"""Moments that are looked back over."""


class Pace:
    """Seconds a round, over the last moments at which somebody saw how far the run was."""

    def __init__(self) -> None:
        self._moments: deque[tuple[float, int]] = deque(maxlen=_MOST)

    def add(self, at: float, done: int) -> None:
        """So many rounds were done at a moment, in seconds. A run that has gone back is looked at afresh."""
        if self._moments and done < self._moments[-1][1]:
            self._moments.clear()
        if not self._moments or done > self._moments[-1][1]:
            self._moments.append((at, done))

    @property
    def seconds(self) -> float | None:
        """Seconds a round; None where that is not known yet."""
        if len(self._moments) < _FEWEST:
            return None
        (first, before), (last, after) = self._moments[0], self._moments[-1]
        return (last - first) / (after - before) if last > first else None
