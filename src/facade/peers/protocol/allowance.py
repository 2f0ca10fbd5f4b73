"""How often something may happen: at a rate, with a number of times at once."""

from __future__ import annotations


class Allowance:
    """What one caller may do. Times are monotonic seconds."""

    def __init__(self, rate: float, at_once: float, now: float) -> None:
        self._rate = rate
        """Times a second."""
        self._at_once = at_once
        self._left = at_once
        """Below 0 while more was taken than there was."""
        self._now = now

    def take(self, now: float, longest: float | None = None) -> float | None:
        """Take one; the seconds after which there is one, 0 for at once. Where these would be more than `longest`,
        nothing is taken: None."""
        self._refill(now)
        delay = max(0.0, (1 - self._left) / self._rate)
        if longest is not None and delay > longest:
            return None
        self._left -= 1
        return delay

    def is_full(self, now: float) -> bool:
        """Whether nothing has been taken for so long that this is as good as a new one."""
        self._refill(now)
        return self._left >= self._at_once

    def _refill(self, now: float) -> None:
        self._left = min(self._at_once, self._left + (now - self._now) * self._rate)
        self._now = now
