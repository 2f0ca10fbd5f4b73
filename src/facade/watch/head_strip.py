"""Who chose which head, over rounds: a row for every node, and few enough columns for a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from facade.watch.thinned import MOST

LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
"""A head is one letter; the last one stands for all that come after."""
_NOTHING = "."


class HeadStrip:
    """Columns of choices. Each is that of the last round of a span, which doubles when there are too many columns."""

    def __init__(self, rows: int) -> None:
        self.span = 1
        self._columns: list[list[str]] = []
        self._rows = rows

    def add(self, round: int, choice: Sequence[int]) -> None:
        """The choices of all rows in a round."""
        self._column(round)[:] = [LETTERS[min(head, len(LETTERS) - 1)] for head in choice]

    def set(self, row: int, round: int, head: int) -> None:
        """The choice of one row in a round."""
        self._column(round)[row] = LETTERS[min(head, len(LETTERS) - 1)]

    def _column(self, round: int) -> list[str]:
        while (round - 1) // self.span >= MOST:
            pairs = [self._columns[i : i + 2] for i in range(0, len(self._columns), 2)]
            self._columns = [_later(pair) for pair in pairs]
            self.span *= 2
        place = (round - 1) // self.span
        while len(self._columns) <= place:
            self._columns.append([_NOTHING] * self._rows)
        return self._columns[place]

    def plain(self) -> dict[str, Any] | None:
        """As JSON knows it: the rounds of a column, and the columns, a letter for each row; None without any choice."""
        if not self._columns:
            return None
        return {"span": self.span, "columns": ["".join(column) for column in self._columns]}


def _later(pair: Sequence[list[str]]) -> list[str]:
    """Of two columns, what rows chose last."""
    if len(pair) == 1:
        return pair[0]
    return [before if after == _NOTHING else after for before, after in zip(*pair, strict=True)]
