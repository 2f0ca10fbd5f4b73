"""The verdict on sites where nobody knows which of them are alike: what they gain, and which groups were found."""

from __future__ import annotations

from collections.abc import Sequence

from facade.analysis.sites import REFERENCES, Sites, groups_in_words, listed


def site_sentences(label: str, sites: Sites) -> list[str]:
    """What the sites of an experiment gain over training alone and over EL, and who shares a head with whom."""
    sentences = [_gains(label, sites, reference) for reference in sites.gains]
    groups = groups_in_words(sites)
    return [*sentences, f"{label}: {groups}"] if groups else sentences


def _gains(label: str, sites: Sites, reference: str) -> str:
    gains, least = sites.gains[reference], sites.least_gaining(reference)
    mean, interval = gains.estimate(lambda values: values.mean(1)), gains.of(least).interval
    reach = "" if interval is None else f" [{100 * interval.low:.1f}, {100 * interval.high:.1f}]"
    better, worse = sites.clear(reference)
    sure = [_clearly(names, word, len(sites.names)) for word, names in (("better", better), ("worse", worse)) if names]
    return (
        f"Over {REFERENCES[reference]}, sites gain {100 * (mean.mean or 0.0):.1f} points on average by {label};"
        f" {sites.names[least]} gains least: {100 * gains.means[least]:+.1f}{reach}."
        f" By their own intervals, {' and '.join(sure) or 'no site is clearly better or worse off'}."
    )


def _clearly(names: Sequence[str], word: str, n: int) -> str:
    return f"{len(names)} of {n} sites {'is' if len(names) == 1 else 'are'} clearly {word} off ({listed(names)})"
