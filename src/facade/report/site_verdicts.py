"""The verdict on sites where nobody knows which of them are alike: what they gain, and which groups were found."""

from __future__ import annotations

from collections.abc import Sequence

from facade.analysis.sites import REFERENCES, Sites, SiteValues, groups_in_words, listed


def site_sentences(label: str, sites: Sites) -> list[str]:
    """What the sites of an experiment gain over training alone and over EL, and who shares a head with whom."""
    sentences = [_gains(label, sites, reference, gains) for reference, gains in sites.gains.items()]
    sentences = [sentence for sentence in sentences if sentence]
    groups = groups_in_words(sites)
    return [*sentences, f"{label}: {groups}"] if groups else sentences


def _gains(label: str, sites: Sites, reference: str, gains: SiteValues) -> str:
    """What sites gain over one algorithm; empty where no site has what counts."""
    least, mean, by = sites.least_gaining(reference), gains.mean().mean, sites.measure
    if least is None or mean is None:
        return ""
    lowest, interval = gains.means[least], gains.of(least).interval
    reach = "" if interval is None else f" [{by.difference(interval.low)}, {by.difference(interval.high)}]"
    word, amount = "lose" if mean < 0 else "gain", by.difference(abs(mean))
    changed = f"{word} {amount} points" if by.percent else f"{word} {amount} in {by.word}"
    better, worse = sites.clear(reference)
    sure = [_clearly(names, word, len(sites.names)) for word, names in (("better", better), ("worse", worse)) if names]
    return (
        f"Over {REFERENCES[reference]}, sites {changed} on average by {label};"
        f" {sites.names[least]} gains least: {'+' if lowest >= 0 else ''}{by.difference(lowest)}{reach}."
        f" By their own intervals, {' and '.join(sure) or 'no site is clearly better or worse off'}."
    )


def _clearly(names: Sequence[str], word: str, n: int) -> str:
    return f"{len(names)} of {n} sites {'is' if len(names) == 1 else 'are'} clearly {word} off ({listed(names)})"
