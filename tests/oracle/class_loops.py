"""Which classes nodes have, as sets of Python integers: whether they tell groups apart, and who is in which."""

from __future__ import annotations

ALIKE, LACKING, DISJOINT, BEFORE_LOOKS = 0.55, 0.45, 0.25, 1000.0

Counts = dict[int, float]
"""Rows per class, of a node or of a group; of a group they are estimates."""


def overlap(mine: set[int], others: list[set[int]]) -> list[float]:
    """Of those heard, the share without and with a class in common, and the mean share of classes in common."""
    disjoint = [theirs for theirs in others if not mine & theirs]
    alike = [len(mine & theirs) / len(mine | theirs) for theirs in others if len(mine & theirs) > 1]
    heard = max(len(others), 1)
    return [len(disjoint) / heard, (len(others) - len(disjoint)) / heard, sum(alike) / heard, 0.0]


def may_tell_apart(heard: list[float], n: int) -> bool:
    disjoint, overlapping, alike, _ = heard
    return disjoint > (disjoint + overlapping) / n and alike >= ALIKE * overlapping


def bids(mine: set[int], group: Counts) -> bool:
    """Whether a node lacks the classes of so many of its group's rows that it bids by classes."""
    rows = {c: max(count, 0.0) for c, count in group.items()}
    return sum(count for c, count in rows.items() if c not in mine) >= LACKING * sum(rows.values())


def nearer(own: Counts, new: Counts, old: Counts) -> float:
    """How much more of its classes is in the new half, row by row."""
    total = 0.0
    for c, rows in own.items():
        here, there = max(new.get(c, 0.0), 0.0), max(old.get(c, 0.0), 0.0)
        if here + there > 0:
            total += rows * (here - there) / (here + there)
    return total / sum(own.values())
