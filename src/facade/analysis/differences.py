"""Whether two experiments can be told apart: the difference of a number between them, and how sure it is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from facade.analysis.statistics import Estimate, Interval, student_interval


class Difference(NamedTuple):
    """A number of one experiment against that of another."""

    one: float
    other: float
    """Means over the seeds that both have; of all where they have fewer than two in common."""
    interval: Interval | None
    """For one - other, paired over seeds or from the noise of the test sets; None: nobody can say."""
    seeds: int | None
    """How many seeds both have, where one has more; None where nobody has, or nothing is paired."""

    @property
    def by(self) -> float:
        """How much larger the first is."""
        return self.one - self.other

    @property
    def told_apart(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.interval is not None and not self.interval.low <= 0 <= self.interval.high


class Seeded(NamedTuple):
    """A number over the seeds of an experiment, all of which have it."""

    seeds: Sequence[int]
    estimate: Estimate


def difference(one: Seeded, other: Seeded) -> Difference:
    """The difference of a number that every seed of both experiments has."""
    points = [dict(zip(side.seeds, side.estimate.known, strict=True)) for side in (one, other)]
    common = [seed for seed in points[0] if seed in points[1]]
    if len(common) > 1:
        pairs = [(points[0][seed], points[1][seed]) for seed in common]
        ours, theirs = (sum(side) / len(pairs) for side in zip(*pairs, strict=True))
        seeds = None if len(common) == len(points[0]) == len(points[1]) else len(common)
        return Difference(ours, theirs, student_interval([a - b for a, b in pairs]), seeds)
    ours, theirs = (sum(side.values()) / len(side) for side in points)
    return Difference(ours, theirs, _unpaired(one.estimate, other.estimate, ours - theirs), None)


def leading(numbers: Mapping[int, Seeded], higher: bool) -> set[int]:
    """Of experiments on the same data, by their places: the best, the highest or the lowest, and those that cannot be
    told from it. Nobody, where that is everybody; those whose number some seed lacks do not count."""
    known = {i: number for i, number in numbers.items() if len(number.estimate.known) == len(number.seeds)}
    if not known:
        return set()
    best = max(known, key=lambda i: (1 if higher else -1) * sum(known[i].estimate.known) / len(known[i].seeds))
    alike = {i for i, own in known.items() if i == best or not difference(known[best], own).told_apart}
    return alike if len(alike) < len(known) else set()


def _unpaired(ours: Estimate, theirs: Estimate, by: float) -> Interval | None:
    """An interval for the difference of two experiments without seeds in common, or of two single runs, from the
    noise of their test sets."""
    one, other = _uncut(ours), _uncut(theirs)
    if one is None or other is None or ours.mean is None or theirs.mean is None:
        return None
    if one.accounts_for != other.accounts_for:
        return None
    reach = math.hypot(
        max(ours.mean - one.low, one.high - ours.mean), max(theirs.mean - other.low, other.high - theirs.mean)
    )
    return Interval(by - reach, by + reach, one.accounts_for)


def _uncut(estimate: Estimate) -> Interval | None:
    """The interval also where the number cannot be: how far it reaches there counts for a difference. (That of a
    single run is cut on one side at most, as far as the test set is not tiny.)"""
    return student_interval(estimate.points) if len(estimate.points) > 1 else estimate.interval
