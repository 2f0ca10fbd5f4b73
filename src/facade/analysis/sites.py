"""Sites one by one, for federations in which nobody knows who is alike: how good the model of each is, what it gains
over training alone and over Epidemic Learning, and with whom it shares a head."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from facade.analysis.measures import ACCURACY, Measure, variances
from facade.analysis.metrics import Floats
from facade.analysis.node_values import mean_of_known, moved_values, node_values
from facade.analysis.resampling import RESAMPLES, likely_accuracies
from facade.analysis.statistics import Estimate, counterpart, spread, student_interval
from facade.runs.history import History

REFERENCES = {"local": "training alone", "el": "EL"}
"""Algorithms over which gains are measured, and what they are called."""


def _drawn(run: History, by: Measure, purpose: str) -> Floats:
    """[RESAMPLES, n] what the final values may truly be, given the test samples of every site. Of measures that are no
    accuracy: by their variances; NaN where these are not known or 0, as of an AUC of 1, which is no certainty."""
    if by == ACCURACY:
        return likely_accuracies(run.final.confusion, np.arange(len(run.nodes)), purpose)
    values, silent = node_values(run.final, by), variances(by, run.final.confusion, run.final.beside) == 0
    if by.limited:
        silent |= (values <= 0) | (values >= 1)  # where a variance may be other than 0 by rounding alone
    return np.where(silent, np.nan, moved_values(run.final, by, run.test_of, RESAMPLES, purpose))


@dataclass(frozen=True)
class SiteValues:
    """A number of every site."""

    points: Floats
    """[seeds, n]; NaN where there is none, such as the AUC of a site that was not tested on all classes."""
    draws: Floats | None
    """[RESAMPLES, n] what it may truly be, from test samples; NaN where nobody knows. None where several seeds say how
    sure it is."""
    lowest: float = 0.0
    highest: float = 1.0
    """What the number can be."""

    @property
    def means(self) -> Floats:
        """[n] over seeds; NaN unless every seed has the number."""
        return np.asarray(self.points.mean(0))

    def of(self, site: int) -> Estimate:
        """The number of one site."""
        return self.estimate(lambda values: values[:, site])

    def estimate(self, picked: Callable[[Floats], Floats]) -> Estimate:
        """What `picked` makes of the values [..., n] of all sites, over seeds or over draws."""
        return self._estimate(picked(self.points), None if self.draws is None else picked(self.draws))

    def mean(self) -> Estimate:
        """The mean over the sites that have the number."""
        points, known = np.array([mean_of_known(values) for values in self.points]), ~np.isnan(self.points[0])
        return self._estimate(points, None if self.draws is None or not known.any() else self.draws[:, known].mean(1))

    def _estimate(self, values: Floats, draws: Floats | None) -> Estimate:
        points = [None if math.isnan(value) else float(value) for value in values]
        if draws is None or points[0] is None or np.isnan(draws).any():
            interval = student_interval(points)
        else:
            interval = spread(points[0], draws)
        if interval is not None:
            interval = interval._replace(low=max(interval.low, self.lowest), high=min(interval.high, self.highest))
        return Estimate(points, interval)


def _lowest(means: Floats) -> int | None:
    """The place of the lowest of the numbers that are known."""
    return None if np.isnan(means).all() else int(np.nanargmin(means))


@dataclass(frozen=True)
class HeadGroups:
    """Who shares a head with whom, and with which seeds."""

    groups: list[list[str]]
    """Names of the sites of every head that is in use, by its number in the first of the seeds."""
    heads: list[int]
    """The numbers of these heads."""
    seeds: list[int]


@dataclass(frozen=True)
class Sites:
    """The sites of one experiment, over its seeds."""

    names: list[str]
    nodes: list[int]
    """Their numbers in the run."""
    samples: list[int]
    """How many they train on."""
    tested: list[int]
    """How many samples they are tested on."""
    measure: Measure
    """What sites are compared by."""
    values: SiteValues
    """What each comes to by it."""
    gains: dict[str, SiteValues]
    """By algorithm of REFERENCES: how much better each is off than by it with the same data, model and seed; only those
    of which there are such runs."""
    groups: list[HeadGroups]
    """Every division by heads that was found, the one of the first seed first; empty without heads."""

    @property
    def worst(self) -> int | None:
        """The site that is worst by its mean over seeds; None where no site has one."""
        return _lowest(self.measure.better * self.values.means)

    @property
    def best(self) -> int | None:
        """The one that is best."""
        return _lowest(-self.measure.better * self.values.means)

    def least_gaining(self, over: str) -> int | None:
        """The site whose mean gain over an algorithm is the lowest."""
        return _lowest(self.gains[over].means)

    def name(self, site: int | None) -> str:
        """What a site is called; empty where there is none."""
        return "" if site is None else self.names[site]

    def clear(self, over: str) -> tuple[list[str], list[str]]:
        """The sites that gain, and those that lose, by an interval that leaves out 0."""
        intervals = [self.gains[over].of(site).interval for site in range(len(self.names))]
        sure = [(name, interval) for name, interval in zip(self.names, intervals, strict=True) if interval is not None]
        return [name for name, by in sure if by.low > 0], [name for name, by in sure if by.high < 0]


def sites_of(runs: Sequence[History], others: Sequence[History] = ()) -> Sites:
    """The sites of the runs of one experiment; `others` are runs to measure gains over."""
    first, by = runs[0], runs[0].measure
    points = np.array([node_values(run.final, by) for run in runs])
    draws = _drawn(first, by, "site") if len(runs) == 1 else None
    gains = {}
    for reference in () if first.algorithm == "local" else REFERENCES:
        partners = [other for run in runs if (other := counterpart(run, others, reference)) is not None]
        if len(partners) == len(runs):
            places = np.searchsorted(partners[0].nodes, first.nodes)
            theirs = np.array([node_values(other.final, by)[places] for other in partners])
            noise = None if draws is None else draws - _drawn(partners[0], by, f"site-{reference}")[:, places]
            gained = by.better * (points - theirs)
            gains[reference] = SiteValues(gained, None if noise is None else by.better * noise, -by.highest, by.highest)
    return Sites(
        first.sites,
        first.nodes.tolist(),
        [first.data["images"][node] for node in first.nodes],
        first.final.confusion.sum((1, 2)).tolist(),
        by,
        SiteValues(points, draws, highest=by.highest),
        gains,
        _divisions(runs),
    )


def _divisions(runs: Sequence[History]) -> list[HeadGroups]:
    """Every division of the sites by final heads, whatever the numbers of these, with the seeds that found it."""
    found: dict[tuple[tuple[str, ...], ...], HeadGroups] = {}
    for run in runs:
        if run.final.choice is None:
            return []
        heads = sorted(set(run.final.choice.tolist()))
        groups = [[run.sites[i] for i in np.nonzero(run.final.choice == head)[0]] for head in heads]
        division = tuple(sorted(map(tuple, groups)))
        found.setdefault(division, HeadGroups(groups, heads, [])).seeds.append(run.seed)
    return list(found.values())


def site_numbers(sites: Sites) -> dict[str, Estimate]:
    """What a table says of all sites: the worst one, the gap between the best and the worst, mean and lowest gains. The
    worst and the best are those of the means over seeds, so that each is one site; nothing where no site has one."""
    worst, best, better = sites.worst, sites.best, sites.measure.better
    numbers = {}
    if worst is not None and best is not None:
        numbers["worst_site"] = sites.values.of(worst)
        numbers["gap_between_sites"] = sites.values.estimate(
            lambda values: better * (values[:, best] - values[:, worst])
        )
    for reference, gains in sites.gains.items():
        if (least := sites.least_gaining(reference)) is not None:
            numbers[f"worst_gain_over_{reference}"] = gains.of(least)
            numbers[f"mean_gain_over_{reference}"] = gains.mean()
    return numbers


def by_site(sites: Sites) -> dict[str, Estimate]:
    """Accuracy, or what else counts, and gains of every site: `accuracy:NAME`, `gain_over_local:NAME`, ..."""
    every = {sites.measure.name: sites.values}
    every |= {f"gain_over_{reference}": gains for reference, gains in sites.gains.items()}
    return {f"{what}:{name}": values.of(i) for what, values in every.items() for i, name in enumerate(sites.names)}


def groups_in_words(sites: Sites) -> str:
    """Who shares a head with whom, in a sentence or two; empty without heads."""
    if not sites.groups:
        return ""
    first, *others = sites.groups
    each = "; ".join(f"head {head}: {listed(group)}" for head, group in zip(first.heads, first.groups, strict=True))
    if len(first.groups) == 1:
        each = f"all sites share head {first.heads[0]}"
    seeds = [seed for division in sites.groups for seed in division.seeds]
    if len(seeds) == 1:
        return f"Groups found by heads: {each}."
    if not others:
        return f"Groups found by heads, the same with all {len(seeds)} seeds: {each}."
    return (
        f"Groups found by heads with {len(first.seeds)} of {len(seeds)} seeds: {each}. The other seeds found"
        f" {len(others)} other division{'s' if len(others) > 1 else ''}."
    )


_MOST_LISTED = 12


def listed(names: Sequence[str]) -> str:
    """Names one after the other; of very many, some."""
    if len(names) > _MOST_LISTED:
        return f"{', '.join(names[:_MOST_LISTED])} and {len(names) - _MOST_LISTED} others"
    return ", ".join(names)
