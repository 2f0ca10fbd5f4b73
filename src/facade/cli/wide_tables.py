"""Tables that fit the terminal: what does not fit beside each other comes in parts below each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text


class TextColumn(NamedTuple):
    """A heading and a cell for every line; both may have several lines of text."""

    heading: str
    cells: list[str]
    bold: frozenset[int] = frozenset()
    """Lines whose cell stands out."""

    @property
    def width(self) -> int:
        """Characters of the longest line of text."""
        return max(len(line) for text in (self.heading, *self.cells) for line in text.split("\n"))


def print_wide(
    console: Console,
    labels: Sequence[TextColumn],
    columns: Sequence[TextColumn],
    gap: int,
    styles: Sequence[str | None] = (),
) -> None:
    """Print columns right of the labels, which begin every part. Labels that would take more than half of the
    terminal, or leave no room for a column, give way to a number each and come in a list of their own."""
    widest = max(column.width + gap for column in columns)
    if _width(labels, gap) > min(console.width // 2, console.width - widest):
        labels = [_numbered(console, labels)]
    for part in _parts(columns, console.width - _width(labels, gap), gap):
        table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False)
        for label in labels:
            table.add_column(label.heading, no_wrap=True)
        for column in part:
            heading = column.heading if any(not c.heading.startswith("\n") for c in part) else column.heading[1:]
            table.add_column(heading, justify="right", no_wrap=True)
        for i in range(len(labels[0].cells)):
            cells = [Text(column.cells[i], "bold" if i in column.bold else "") for column in (*labels, *part)]
            table.add_row(*cells, style=styles[i] if styles else None)
        console.print(table)
        console.print()


def _width(columns: Sequence[TextColumn], gap: int) -> int:
    return sum(column.width + gap for column in columns)


def _parts(columns: Sequence[TextColumn], room: int, gap: int) -> list[list[TextColumn]]:
    """Columns that fit beside each other, part by part."""
    parts: list[list[TextColumn]] = [[]]
    left = room
    for column in columns:
        if column.width + gap > left and parts[-1]:
            parts.append([])
            left = room
        parts[-1].append(column)
        left -= column.width + gap
    return parts


def _numbered(console: Console, labels: Sequence[TextColumn]) -> TextColumn:
    """Print what the numbers stand for; give the column of numbers."""
    headings = [label.heading.strip() for label in labels]
    numbers = [f"({i + 1})" for i in range(len(labels[0].cells))]
    for i, number in enumerate(numbers):
        label_texts = ", ".join(f"{heading} {label.cells[i]}" for heading, label in zip(headings, labels, strict=True))
        console.print(f"{number} {label_texts}", soft_wrap=True)
    console.print()
    return TextColumn("", numbers)
