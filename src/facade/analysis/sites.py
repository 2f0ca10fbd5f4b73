"""Sites one by one, for federations in which nobody knows who is alike: how good the model of each is, what it gains
over training alone and over Epidemic Learning, and with whom it shares a head."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from facade.analysis import metrics
from facade.analysis.metrics import Floats
from facade.analysis.statistics import LEVEL, RESAMPLES, TEST_NOISE, Estimate, Interval, counterpart, student_interval
from facade.core import seeds
from facade.runs.history import Evaluation, History

REFERENCES = {"local": "training alone", "el": "EL"}
"""Algorithms over which gains are measured, and what they are called."""


def site_values(evaluation: Evaluation) -> Floats:
    """[n] the number by which sites are compared: accuracy."""
    return metrics.accuracy(evaluation.confusion)


def _drawn(evaluation: Evaluation, purpose: str) -> Floats:
    """[RESAMPLES, n] what it may truly be, given the test counts of every site: draws from the posterior of a share
    with Jeffreys' prior. (Drawing test samples again, as is done for clusters, would take a site with 18 right answers
    of 18 for one that is never wrong.)"""
    counts = evaluation.confusion.sum((1, 2))
    right = np.trace(evaluation.confusion, axis1=1, axis2=2)
    generator = np.random.Generator(np.random.PCG64(seeds.key(0, f"resample-{purpose}")))
    return generator.beta(right + 0.5, counts - right + 0.5, (RESAMPLES, len(counts)))


@dataclass(frozen=True)
class SiteValues:
    """A number of every site."""

    points: Floats
    """[seeds, n]"""
    draws: Floats | None
    """[RESAMPLES, n] what it may truly be, from test counts; None where several seeds say how sure it is."""
    lowest: float = 0.0
    """What the number can be at least; it is 1 at most."""

    @property
    def means(self) -> Floats:
        """[n] over seeds."""
        return np.asarray(self.points.mean(0))

    def of(self, site: int) -> Estimate:
        """The number of one site."""
        return self.estimate(lambda values: values[:, site])

    def estimate(self, picked: Callable[[Floats], Floats]) -> Estimate:
        """What `picked` makes of the values [..., n] of all sites, over seeds or over draws."""
        points = picked(self.points).tolist()
        interval = student_interval(points) if self.draws is None else _spread(points[0], picked(self.draws))
        if interval is not None:
            interval = interval._replace(low=max(interval.low, self.lowest), high=min(interval.high, 1.0))
        return Estimate(points, interval)


def _spread(value: float, draws: Floats) -> Interval:
    """The range of the draws, which the value itself belongs to."""
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(min(float(low), value), max(float(high), value), TEST_NOISE)


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
    accuracy: SiteValues
    gains: dict[str, SiteValues]
    """By algorithm of REFERENCES: accuracy minus the one that it gives with the same data, model and seed; only those
    of which there are such runs."""
    groups: list[HeadGroups]
    """Every division by heads that was found, the one of the first seed first; empty without heads."""

    @property
    def worst(self) -> int:
        """The site whose mean accuracy over seeds is the lowest."""
        return int(self.accuracy.means.argmin())

    @property
    def best(self) -> int:
        """The one whose mean is the highest."""
        return int(self.accuracy.means.argmax())

    def least_gaining(self, over: str) -> int:
        """The site whose mean gain over an algorithm is the lowest."""
        return int(self.gains[over].means.argmin())

    def clear(self, over: str) -> tuple[list[str], list[str]]:
        """The sites that gain, and those that lose, by an interval that leaves out 0."""
        intervals = [self.gains[over].of(site).interval for site in range(len(self.names))]
        sure = [(name, interval) for name, interval in zip(self.names, intervals, strict=True) if interval is not None]
        return [name for name, by in sure if by.low > 0], [name for name, by in sure if by.high < 0]


def sites_of(runs: Sequence[History], others: Sequence[History] = ()) -> Sites:
    """The sites of the runs of one experiment; `others` are runs to measure gains over."""
    first = runs[0]
    points = np.array([site_values(run.final) for run in runs])
    draws = _drawn(first.final, "site") if len(runs) == 1 else None
    gains = {}
    for reference in () if first.algorithm == "local" else REFERENCES:
        partners = [other for run in runs if (other := counterpart(run, others, reference)) is not None]
        if len(partners) == len(runs):
            places = np.searchsorted(partners[0].nodes, first.nodes)
            theirs = np.array([site_values(other.final)[places] for other in partners])
            noise = None if draws is None else draws - _drawn(partners[0].final, f"site-{reference}")[:, places]
            gains[reference] = SiteValues(points - theirs, noise, -1.0)
    return Sites(
        first.sites,
        first.nodes.tolist(),
        [first.data["images"][node] for node in first.nodes],
        first.final.confusion.sum((1, 2)).tolist(),
        SiteValues(points, draws),
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
    worst and the best are those of the means over seeds, so that each is one site."""
    worst, best = sites.worst, sites.best
    numbers = {
        "worst_site": sites.accuracy.of(worst),
        "gap_between_sites": sites.accuracy.estimate(lambda values: values[:, best] - values[:, worst]),
    }
    for reference, gains in sites.gains.items():
        numbers[f"worst_gain_over_{reference}"] = gains.of(sites.least_gaining(reference))
        numbers[f"mean_gain_over_{reference}"] = gains.estimate(lambda values: values.mean(1))
    return numbers


def by_site(sites: Sites) -> dict[str, Estimate]:
    """Accuracy and gains of every site, called `accuracy:NAME`, `gain_over_local:NAME`, ..."""
    every = {"accuracy": sites.accuracy} | {f"gain_over_{reference}": gains for reference, gains in sites.gains.items()}
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
