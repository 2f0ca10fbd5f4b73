"""Every rule of guards again, for one node, as plain loops over lists.

What a node heard of one part is a list of `Place`s, its own among them; a rule returns what it uses in each place and
which it dropped.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

Numbers = list[float]


class Place(NamedTuple):
    """What a node heard from one member, or nothing (here = False)."""

    value: Numbers
    held: Numbers
    here: bool
    own: bool
    group: int
    judged: bool
    loss: Callable[[Numbers], float]

    @property
    def other(self) -> bool:
        return self.here and not self.own


Verdicts = tuple[list[Numbers], list[bool]]


def norm(numbers: Numbers) -> float:
    return math.sqrt(sum(x * x for x in numbers))


def distance(a: Numbers, b: Numbers) -> float:
    return norm([x - y for x, y in zip(a, b, strict=True)])


def lower_median(numbers: Numbers) -> float:
    return sorted(numbers)[(len(numbers) - 1) // 2] if numbers else 0.0


def without(places: list[Place], dropped: list[bool]) -> Verdicts:
    """One's own in the place of what is dropped."""
    return [p.held if out else p.value for p, out in zip(places, dropped, strict=True)], dropped


def balance(places: list[Place], progress: float, gamma: float = 0.3, kappa: float = 1.0) -> Verdicts:
    share = gamma * math.exp(-kappa * progress)
    return without(places, [p.other and distance(p.value, p.held) > share * norm(p.held) for p in places])


def moved(place: Place, value: Numbers, radius: float) -> Numbers:
    """The value, at most so far from one's own."""
    far = distance(value, place.held)
    if not place.other or far <= radius:
        return value
    return [h + (v - h) * radius / far for v, h in zip(value, place.held, strict=True)]


def clip(places: list[Place], progress: float) -> Verdicts:
    radius = lower_median([distance(p.value, p.held) for p in places if p.other])
    return [moved(p, p.value, radius) for p in places], [False] * len(places)


def nearest(places: list[Place], progress: float, bad: int = 1) -> Verdicts:
    others = [i for i, p in enumerate(places) if p.other]
    farthest = sorted(others, key=lambda i: -distance(places[i].value, places[i].held))[:bad]
    return without(places, [i in farthest for i in range(len(places))])


def by_group(places: list[Place], values: list[Numbers], rule: Callable[[list[Numbers]], Numbers]) -> list[Numbers]:
    """In the place of every value what the rule makes of its group."""
    after = list(values)
    for i, place in enumerate(places):
        if place.here:
            members = [v for v, p in zip(values, places, strict=True) if p.here and p.group == place.group]
            after[i] = rule(members)
    return after


def median_of_each(members: list[Numbers]) -> Numbers:
    ordered = [sorted(numbers) for numbers in zip(*members, strict=True)]
    low, high = (len(members) - 1) // 2, len(members) // 2
    return [(numbers[low] + numbers[high]) / 2 for numbers in ordered]


def trimmed_mean_of_each(members: list[Numbers], share: float = 0.2) -> Numbers:
    cut = min(round(share * len(members)), (len(members) - 1) // 2)
    kept = [sorted(numbers)[cut : len(members) - cut] for numbers in zip(*members, strict=True)]
    return [sum(numbers) / len(numbers) for numbers in kept]


def nearest_to_most(members: list[Numbers], bad: int = 1) -> Numbers:
    near = min(max(len(members) - bad - 2, 1), len(members) - 1)
    scores = []
    for i, one in enumerate(members):
        apart = sorted(distance(one, other) ** 2 for j, other in enumerate(members) if j != i)
        scores.append(sum(apart[:near]))
    return members[scores.index(min(scores))]


def median(places: list[Place], progress: float) -> Verdicts:
    return by_group(places, [p.value for p in places], median_of_each), [False] * len(places)


def trimmed(places: list[Place], progress: float) -> Verdicts:
    return by_group(places, [p.value for p in places], trimmed_mean_of_each), [False] * len(places)


def krum(places: list[Place], progress: float) -> Verdicts:
    return by_group(places, [p.value for p in places], nearest_to_most), [False] * len(places)


def half_way(place: Place) -> Numbers:
    return [(mine + theirs) / 2 for mine, theirs in zip(place.held, place.value, strict=True)]


class Known(NamedTuple):
    """The share of what a node's own model knows that may be lost, and the loss of one that knows nothing."""

    share: float
    guessing: float


NOTHING = Known(0.0, 0.0)


def harmful(
    places: list[Place],
    times: float,
    floor: float,
    known: Known = NOTHING,
    affordable: int | None = None,
    several: int = 3,
) -> list[bool]:
    """Which raise the loss more than `times` what is usual, or what is accepted where too little says what is usual; of
    those that can be judged, the `affordable` that differ most are."""
    (own,) = (p for p in places if p.own)
    before = own.loss(half_way(own))
    can = [i for i, p in enumerate(places) if p.other and p.judged]
    suspects = sorted(can, key=lambda i: -distance(places[i].value, places[i].held))[:affordable]
    rises = {i: places[i].loss(half_way(places[i])) - before for i in suspects}
    enough = len(suspects) >= several and 2 * len(suspects) > sum(p.other for p in places)
    usual = max(lower_median(list(rises.values())), 0.0) if enough else 0.0
    most = max(times * usual, floor, known.share * (known.guessing - before))
    return [i in rises and not rises[i] <= most for i in range(len(places))]


def own_data(places: list[Place], progress: float, times: float = 3.0, floor: float = 0.3) -> Verdicts:
    return without(places, harmful(places, times, floor))


class FairNumbers(NamedTuple):
    """What the recommended guard goes by."""

    times: float
    floor: float
    known: Known
    reach: float
    kappa: float
    share: float
    enough: int
    affordable: int


def fair(places: list[Place], progress: float, by: FairNumbers) -> Verdicts:
    dropped = harmful(places, by.times, by.floor, by.known, by.affordable)
    (own,) = (p for p in places if p.own)
    comparable = [p.other and not out and p.group == own.group for p, out in zip(places, dropped, strict=True)]
    usual = lower_median([distance(p.value, p.held) for p, yes in zip(places, comparable, strict=True) if yes])
    values = []
    for place, out, yes in zip(places, dropped, comparable, strict=True):
        radius = (
            usual
            if yes and sum(comparable) >= by.enough - 1
            else by.reach * math.exp(-by.kappa * progress) * norm(place.held)
        )
        values.append(place.held if out else moved(place, place.value, radius))
    used = [p.here and not out for p, out in zip(places, dropped, strict=True)]

    def of_group(group: int) -> list[Numbers]:
        return [v for v, p, yes in zip(values, places, used, strict=True) if yes and p.group == group]

    members = {group: of_group(group) for group in {p.group for p in places}}
    for i, place in enumerate(places):
        if used[i] and len(members[place.group]) >= by.enough:
            values[i] = trimmed_mean_of_each(members[place.group], by.share)
    of_kind = of_group(own.group)
    mean = [sum(numbers) / len(numbers) for numbers in zip(*of_kind, strict=True)]
    return [mean if out else value for value, out in zip(values, dropped, strict=True)], dropped


def last_gate(rises: list[float], times: float, floor: float, memory: int) -> tuple[list[bool], float]:
    """Of a node whose loss rises so much by mixing, round after round: when its gate closes, and what it takes for
    usual in the end."""
    usual, closed = 0.0, []
    for rise in rises:
        most = max(times * usual, floor)
        closed.append(not rise <= most)
        usual += (min(max(0.0, rise if math.isfinite(rise) else most), most) - usual) / memory
    return closed, usual
