"""Numbers of the study of real federations: the runs whose rates validation chose, what every group of sites got, and
who shares a head."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from facade.analysis.statistics import Interval, student_interval
from facade.studies import federations
from facade.studies.federations import Choice
from facade.studies.kept_lines import KeptLines, KeptRun
from facade.studies.numbers import average


class ChosenRun(NamedTuple):
    """The run of one split, with what validation chose."""

    run: KeptRun
    choice: Choice

    @property
    def groups(self) -> list[float]:
        """What every group of sites got in the mean, in per cent; where there are no groups, every site."""
        number = self.run.cluster if self.run.cluster.max() else np.arange(len(self.run.cluster))
        return [100 * _mean([self.run.measured[i] for i in np.nonzero(number == g)[0]]) for g in np.unique(number)]

    @property
    def all(self) -> float:
        """The mean over sites, in per cent."""
        return 100 * _mean(self.run.measured)

    @property
    def worst_group(self) -> float:
        """In per cent."""
        return min(self.groups)

    @property
    def worst_site(self) -> float:
        """In per cent."""
        return 100 * min(value for value in self.run.measured if value is not None)


def _mean(values: Sequence[float | None]) -> float:
    return average(value for value in values if value is not None)


class FederationRuns:
    """The runs of the study as far as they are kept."""

    def __init__(self, kept: KeptLines) -> None:
        self.kept = kept

    def chosen(self, name: str, method: str) -> list[ChosenRun]:
        """The runs that a method is judged by, one for every split, with the rate (and loss) that validation
        chose. Nothing as long as a run is missing."""
        known, choice = federations.FEDERATIONS[name], federations.chosen_of(self.kept, name, method)
        if choice is None:
            return []
        runs = self.kept.runs(federations.case_of(name, method, choice, known.splits))
        return [ChosenRun(run, choice) for run in runs] if len(runs) == len(known.splits) else []


class Gain(NamedTuple):
    """How much more one method gives than another, split by split, in points."""

    points: list[float]

    @property
    def mean(self) -> float:
        """Over splits."""
        return average(self.points)

    @property
    def interval(self) -> Interval | None:
        """95 %, Student's t; None of fewer than two splits."""
        return student_interval(list(self.points))

    @property
    def above_zero(self) -> bool:
        """Whether the whole interval is."""
        return self.interval is not None and self.interval.low > 0

    def __str__(self) -> str:
        if not self.points:
            return "-"
        around = self.interval
        half = "" if around is None else f" ± {(around.high - around.low) / 2:.1f}"
        return f"{self.mean:+.1f}{half}"


def gains(new: list[ChosenRun], old: list[ChosenRun]) -> list[Gain]:
    """Of every group, over the splits that both methods have."""
    pairs = _pairs(new, old)
    count = len(pairs[0][0].groups) if pairs else 0
    return [Gain([one.groups[g] - other.groups[g] for one, other in pairs]) for g in range(count)]


def worst_gain(new: list[ChosenRun], old: list[ChosenRun]) -> Gain:
    """Of the worst group, which need not be the same."""
    return Gain([one.worst_group - other.worst_group for one, other in _pairs(new, old)])


def _pairs(new: list[ChosenRun], old: list[ChosenRun]) -> list[tuple[ChosenRun, ChosenRun]]:
    others = {chosen.run.seed: chosen for chosen in old}
    return [(chosen, others[chosen.run.seed]) for chosen in new if chosen.run.seed in others]


def who_found_whom(chosen: list[ChosenRun], names: Sequence[str]) -> list[tuple[str, int, float]]:
    """Which groups share a head, as most of their sites choose; in how many splits; and how many sites, in the mean,
    use another head than most of their group. The most frequent first."""
    seen: Counter[str] = Counter()
    strays: dict[str, list[int]] = {}
    for run in (each.run for each in chosen if each.run.choice is not None):
        choice = np.array(run.choice)
        number = run.cluster if run.cluster.max() else np.arange(len(choice))
        usual = [int(np.bincount(choice[number == g]).argmax()) for g in np.unique(number)]
        together = [[names[g] for g, head in enumerate(usual) if head == used] for used in dict.fromkeys(usual)]
        words = " · ".join(" + ".join(group) for group in together)
        seen[words] += 1
        strays.setdefault(words, []).append(int((choice != np.array(usual)[number]).sum()))
    return [(words, count, average(strays[words])) for words, count in seen.most_common()]
