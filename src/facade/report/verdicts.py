"""The verdict: one sentence per comparison, with how sure it is; and under which prior it was predicted."""

from __future__ import annotations

import math
from collections.abc import Sequence

from facade.analysis.measures import ACCURACY, Measure
from facade.analysis.statistics import SEEDS, Estimate, Interval, student_interval
from facade.analysis.table import PRIORS, in_short, unequal
from facade.core.plan import OTHER_PRIOR
from facade.experiment.decisive_settings import setting
from facade.report.facts import Comparison, Subject

_SERVED = "worst_cluster"


def verdicts(comparison: Comparison) -> list[str]:
    """The leading subject against every other, one sentence each; one sentence for a lone subject."""
    lead, ours = leader(comparison), _ours(comparison)
    others = [subject for subject in comparison.subjects if subject is not lead]
    if not others:
        return [_alone(lead, comparison)]
    kind, among = ("FACADE ", ours) if ours else ("", comparison.subjects)
    picked = f" {lead.label} is the best of {len(among)} {kind}experiments on these very test data."
    return [
        _against(lead, other, comparison) + (picked if among[1:] and _served(lead).mean is not None else "")
        for other in others
    ]


def leader(comparison: Comparison) -> Subject:
    """FACADE where it takes part (the best of several), else whoever serves the worst cluster best."""

    def served(subject: Subject) -> float:
        mean = _served(subject).mean
        return -math.inf if mean is None else comparison.measure.better * mean

    return max(_ours(comparison) or comparison.subjects, key=served)


def _ours(comparison: Comparison) -> list[Subject]:
    return [subject for subject in comparison.subjects if subject.algorithm == "facade"]


def _served(subject: Subject) -> Estimate:
    return subject.estimates.get(_SERVED) or subject.estimates.get("all") or Estimate([None] * len(subject.runs))


def _alone(subject: Subject, comparison: Comparison) -> str:
    accuracy, where = _served(subject), _worst(comparison)
    measure = comparison.measure
    sentence = f"{subject.label} gives {where} {_named(measure, accuracy.mean)}{_bracket(accuracy.interval, measure)}."
    return sentence + _heads(subject) + _leaked(subject) + _never_learned(subject)


def _worst(comparison: Comparison) -> str:
    return "the worst-served cluster" if len(comparison.clusters) > 1 else "all nodes on average"


def _against(lead: Subject, other: Subject, comparison: Comparison) -> str:
    ours, theirs = _served(lead), _served(other)
    if ours.mean is None or theirs.mean is None:
        return f"{lead.label} and {other.label} cannot be compared: a run has no {comparison.measure.word}."
    measure = comparison.measure
    pairs, seeds = _common(lead, other)
    if len(pairs) > 1:
        means = tuple(sum(side) / len(pairs) for side in zip(*pairs, strict=True))
        interval: Interval | None = student_interval([a - b for a, b in pairs])
    else:
        means, interval, seeds = (ours.mean, theirs.mean), _noise_of_difference(ours, theirs), ""
    by = means[0] - means[1]
    values = f"{_named(measure, means[0])} against {measure.value(means[1])}{seeds}"
    if interval is None:
        sentence = (
            f"{lead.label} gives {_worst(comparison)} {_named(measure, means[0])}, {other.label}"
            f" {measure.value(means[1])};"
            " how sure the difference is, one seed against several cannot tell"
        )
    elif interval.low <= 0 <= interval.high:
        sentence = (
            f"{lead.label} and {other.label} serve {_worst(comparison)} too much alike to tell apart:"
            f" {values}, difference {measure.difference(by)}{_points_bracket(interval, measure)}"
        )
    else:
        word = "better" if measure.better * by > 0 else "worse"
        points = f"{measure.difference(abs(by))}{' points' if measure.percent else ''}"
        sentence = (
            f"{lead.label} serves {_worst(comparison)} {word} than {other.label} by {points}:"
            f" {values}{_points_bracket(interval, measure)}"
        )
    return f"{sentence}{_odds(lead, other)}.{_heads(lead)}{_unlike(lead, other)}"


def priors(comparison: Comparison) -> list[str]:
    """Of every subject with the balanced loss, which prior counts, and what the other one gives every cluster."""
    sentences = []
    for subject in comparison.subjects:
        prior = subject.runs[0].final.prior
        if prior is None:
            continue
        other = OTHER_PRIOR[prior]
        names = {f"{other}_cluster_{c}": name for c, name in enumerate(comparison.clusters)} | {f"{other}_all": "all"}
        shares = [f"{of} {_percent(subject.estimates[n].mean)}" for n, of in names.items() if n in subject.estimates]
        sentences.append(
            f"{subject.label}: its numbers are those of predictions {PRIORS[prior]} (prior = {prior}). Predicted"
            f" {PRIORS[other]}: {', '.join(shares)}."
        )
    return sentences


def _common(lead: Subject, other: Subject) -> tuple[list[tuple[float, float]], str]:
    """The two accuracies for every seed that both have, and words for it where one has more seeds."""
    points = [dict(zip([r.seed for r in s.runs], _served(s).known, strict=True)) for s in (lead, other)]
    seeds = [seed for seed in points[0] if seed in points[1]]
    phrase = "" if len(seeds) == len(points[0]) == len(points[1]) else f" with the {len(seeds)} seeds that both have"
    return [(points[0][seed], points[1][seed]) for seed in seeds], phrase


def _noise_of_difference(ours: Estimate, theirs: Estimate) -> Interval | None:
    """An interval for the difference of two single runs, from the noise of their test sets."""
    one, other = _uncut(ours), _uncut(theirs)
    if one is None or other is None or ours.mean is None or theirs.mean is None:
        return None
    if one.accounts_for != other.accounts_for:
        return None
    reach = math.hypot(
        max(ours.mean - one.low, one.high - ours.mean), max(theirs.mean - other.low, other.high - theirs.mean)
    )
    by = ours.mean - theirs.mean
    return Interval(by - reach, by + reach, one.accounts_for)


def _uncut(estimate: Estimate) -> Interval | None:
    """The interval also where the number cannot be: how far it reaches there counts for a difference. (That of a
    single run is cut on one side at most, as far as the test set is not tiny.)"""
    return student_interval(estimate.points) if len(estimate.points) > 1 else estimate.interval


def _odds(lead: Subject, other: Subject) -> str:
    values = [subject.estimates["eo"].mean if "eo" in subject.estimates else None for subject in (lead, other)]
    if values[0] is None or values[1] is None:
        return ""
    return f"; equalized odds {values[0]:.3f} against {values[1]:.3f}, 0 being fair"


def _unlike(lead: Subject, other: Subject) -> str:
    """A sentence on what else than the algorithm makes two subjects differ; nothing where nothing does."""
    ours, theirs = (subject.runs[0].point for subject in (lead, other))
    keys = [key for key in dict.fromkeys([*ours, *theirs]) if not key.startswith("algorithm.") and key != "training.lr"]
    pairs = [(key, setting(ours, key), setting(theirs, key)) for key in keys if ours.get(key) != theirs.get(key)]
    differences = ", ".join(f"{key} ({in_short(one)} against {in_short(two)})" for key, one, two in pairs)
    rates = unequal([other.runs, lead.runs], "training.lr")
    sentences = [f"Mind that they differ in {differences}" if differences else None, rates]
    told = "".join(f" {sentence}." for sentence in sentences if sentence is not None)
    return told + _leaked(lead, other) + _never_learned(lead, other)


def _leaked(*subjects: Subject) -> str:
    """A sentence on accuracies that no site could have had; nothing where there are none."""
    labels = [subject.label for subject in subjects if subject.runs[0].tested_by_oracle]
    return f" {' and '.join(labels)}: tested with heads chosen on test data." if labels else ""


def _never_learned(*subjects: Subject) -> str:
    """A sentence on each of those whose training came to nothing; nothing where there are none."""
    failed = {subject.label: [run.seed for run in subject.runs if not run.learned] for subject in subjects}
    return "".join(
        f" {label} learned nothing with seed{'s' if len(seeds) > 1 else ''} {_listed(seeds)}: its training loss never"
        " fell."
        for label, seeds in failed.items()
        if seeds
    )


def _heads(subject: Subject) -> str:
    """A sentence on heads that did not settle; nothing where all did."""
    settled = subject.estimates["settled"].points if "settled" in subject.estimates else []
    failed = [run.seed for run, yes in zip(subject.runs, settled, strict=bool(settled)) if yes is not None and not yes]
    if not failed:
        return ""
    return f" Mind that its heads did not settle with seed{'s' if len(failed) > 1 else ''} {_listed(failed)}."


def _listed(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))


def _percent(value: float | None) -> str:
    return "an unknown accuracy" if value is None else f"{100 * value:.1f}\u00a0%"


def _named(measure: Measure, value: float | None) -> str:
    """A value with the name of its measure, which an accuracy does without."""
    if value is None:
        return f"an unknown {measure.word}"
    return measure.value(value) if measure == ACCURACY else f"{measure.word} {measure.value(value)}"


def _bracket(interval: Interval | None, measure: Measure) -> str:
    if interval is None:
        return ""
    return f" [{measure.difference(interval.low)}, {measure.difference(interval.high)}; {_kind(interval)}]"


def _points_bracket(interval: Interval | None, measure: Measure) -> str:
    if interval is None:
        return ""
    ends = f"{measure.difference(interval.low)} to {measure.difference(interval.high)}"
    return f" (95\u00a0% interval {ends}, {_kind(interval)})"


def _kind(interval: Interval) -> str:
    return "over seeds" if interval.accounts_for == SEEDS else interval.accounts_for
