"""Which columns of a table stand beside each other on a page, so that nobody has to scroll sideways."""

from __future__ import annotations

from collections.abc import Sequence

ROOM = 1200
"""Pixels beside each other on a page of 1,280."""
_LETTER, _SMALL_LETTER, _PADDING = 8.2, 7.0, 17
"""Pixels of a letter in a wide font, of one of an interval, and between columns."""
_LONGEST_LINE = 24
"""Letters of a label in one line."""


def fitting(labels: Sequence[Sequence[str]], columns: Sequence[Sequence[tuple[str, str]]]) -> list[list[int]]:
    """The places of the columns (heading and cells, each a number and its interval), part by part; every part begins
    with the labels (heading and values)."""
    room = ROOM - sum(_PADDING + _LETTER * letters(texts) for texts in labels)
    parts: list[list[int]] = []
    left = 0.0
    for place, ((heading, _), *cells) in enumerate(columns):
        numbers = [_LETTER * len(number) for number, _ in cells] + [_SMALL_LETTER * len(below) for _, below in cells]
        width = _PADDING + max(_LETTER * _longest_word(heading), *numbers)
        if not parts or width > left:
            parts.append([])
            left = room
        parts[-1].append(place)
        left -= width
    return parts


def letters(texts: Sequence[str]) -> int:
    """How many letters wide a column of labels is: longer ones are broken."""
    return max(min(_LONGEST_LINE, len(text)) for text in texts)


def _longest_word(text: str) -> int:
    return max((len(word) for word in text.split()), default=0)
