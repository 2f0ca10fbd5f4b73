"""Values over rounds, of which no more are kept than a picture shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

MOST = 240
"""Points of a line, or columns of a strip."""


class ThinnedLines:
    """Lines over rounds. Each point is the mean of a span of rounds, which doubles when there are too many."""

    def __init__(self) -> None:
        self.span = 1
        self._points: list[tuple[int, int, list[float]]] = []
        """The last round of a span, how many were added in it, and their sums, line by line."""

    def add(self, round: int, values: Sequence[float]) -> None:
        """Values of one round, a number for each line; lines may be added at the end."""
        if self._points and (self._points[-1][0] - 1) // self.span == (round - 1) // self.span:
            values = _sums(self._points[-1][2], values)
            self._points[-1] = round, self._points[-1][1] + 1, list(values)
        else:
            self._points.append((round, 1, list(values)))
        if len(self._points) > MOST:
            self._halve()

    def _halve(self) -> None:
        points, self.span, self._points = self._points, 2 * self.span, []
        for round, count, sums in points:
            if self._points and (self._points[-1][0] - 1) // self.span == (round - 1) // self.span:
                last = self._points[-1]
                self._points[-1] = round, last[1] + count, _sums(last[2], sums)
            else:
                self._points.append((round, count, sums))

    def plain(self, digits: int = 5) -> dict[str, Any]:
        """As JSON knows it: rounds [p], and values [lines, p]; null for NaN and for what a line did not have yet."""
        lines = max((len(sums) for _, _, sums in self._points), default=0)
        means = [[_mean(sums, j, count, digits) for _, count, sums in self._points] for j in range(lines)]
        return {"rounds": [round for round, _, _ in self._points], "values": means}


def _sums(first: Sequence[float], second: Sequence[float]) -> list[float]:
    longer, shorter = sorted((list(first), list(second)), key=len, reverse=True)
    return [value + (shorter[j] if j < len(shorter) else 0.0) for j, value in enumerate(longer)]


def _mean(sums: Sequence[float], line: int, count: int, digits: int) -> float | None:
    if line >= len(sums) or sums[line] != sums[line]:
        return None
    return round(sums[line] / count, digits)
