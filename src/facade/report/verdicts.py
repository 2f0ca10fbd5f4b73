"""The verdict: one sentence per comparison, with how sure it is; and under which prior it was predicted."""

from __future__ import annotations

import math
from collections.abc import Sequence

from facade.analysis.differences import Seeded, difference
from facade.analysis.experiment_names import in_short
from facade.analysis.measures import ACCURACY, Measure
from facade.analysis.statistics import SEEDS, Interval
from facade.analysis.table import PRIORS
from facade.analysis.unequal_settings import unequal
from facade.core.plan import OTHER_PRIOR
from facade.experiment.decisive_settings import setting
from facade.report.facts import Comparison, Subject
from facade.report.site_verdicts import site_sentences


def verdicts(comparison: Comparison) -> list[str]:
    """The leading subject against every other, one sentence each; one sentence for a lone subject. Where clusters are
    not known, then what sites gain by it, and the groups that it found."""
    lead, ours = leader(comparison), _ours(comparison)
    others = [subject for subject in comparison.subjects if subject is not lead]
    of_sites = [] if lead.sites is None else site_sentences(lead.label, lead.sites)
    if not others:
        return [_alone(lead, comparison), *of_sites]
    kind, among = ("FACADE ", ours) if ours else ("", comparison.subjects)
    picked = f" {lead.label} is the best of {len(among)} {kind}experiments on these very test data."
    picked = picked if among[1:] and lead.served.mean is not None else ""
    return [*(_against(lead, other, comparison) + picked for other in others), *of_sites]


def leader(comparison: Comparison) -> Subject:
    """FACADE where it takes part (the best of several), else whoever serves the worst cluster or site best."""

    def served(subject: Subject) -> float:
        mean = subject.served.mean
        return -math.inf if mean is None else comparison.measure.better * mean

    return max(_ours(comparison) or comparison.subjects, key=served)


def _ours(comparison: Comparison) -> list[Subject]:
    return [subject for subject in comparison.subjects if subject.algorithm == "facade"]


def _whose(subject: Subject) -> str:
    """The name of the worst site in brackets, where sites count."""
    return "" if subject.sites is None else f" ({subject.sites.name(subject.sites.worst)})"


def _alone(subject: Subject, comparison: Comparison) -> str:
    accuracy, where = subject.served, _worst(comparison)
    measure, value = comparison.measure, _named(comparison.measure, accuracy.mean)
    whose = "" if accuracy.mean is None else _whose(subject)
    sentence = f"{subject.label} gives {where} {value}{whose}{_bracket(accuracy.interval, measure)}."
    return sentence + _heads(subject) + _leaked(subject) + _never_learned(subject)


def _worst(comparison: Comparison) -> str:
    if comparison.of_sites:
        return "the worst site"
    return "the worst-served cluster" if len(comparison.clusters) > 1 else "all nodes on average"


def _against(lead: Subject, other: Subject, comparison: Comparison) -> str:
    if lead.served.mean is None or other.served.mean is None:
        return f"{lead.label} and {other.label} cannot be compared: a run has no {comparison.measure.word}."
    measure = comparison.measure
    one, two = (Seeded([run.seed for run in subject.runs], subject.served) for subject in (lead, other))
    found = difference(one, two)
    interval, by = found.interval, found.by
    seeds = "" if found.seeds is None else f" with the {found.seeds} seeds that both have"
    own, their = f"{_named(measure, found.one)}{_whose(lead)}", f"{measure.value(found.other)}{_whose(other)}"
    values = f"{own} against {their}{seeds}"
    if interval is None:
        single = len(lead.runs) == len(other.runs) == 1
        sentence = (
            f"{lead.label} gives {_worst(comparison)} {own}, {other.label} {their}; how sure the difference is,"
            f" {'a single seed' if single else 'one seed against several'} cannot tell"
        )
    elif not found.told_apart:
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
