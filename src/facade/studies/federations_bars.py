"""What the study of real federations had to show, and whether it does."""

from __future__ import annotations

from collections.abc import Iterator

from facade.studies.federations import FEDERATIONS
from facade.studies.federations_numbers import FederationRuns, Gain, gains, worst_gain
from facade.studies.numbers import Bar, average, bar_table

NAME = "farthest"
"""The method that had to show it."""


def bars(study: FederationRuns) -> str:
    """Every bar with what was seen; those that were missed come first."""
    domains = [bar for name in ("office-caltech10-surf", "office-caltech10", "pacs") for bar in _domains(study, name)]
    return bar_table([*_landmine(study), *_heart(study), *domains])


def _landmine(study: FederationRuns) -> Iterator[Bar]:
    new, el, alone = (study.chosen("landmine", method) for method in (NAME, "EL", "alone"))
    above_el, above_alone = gains(new, el), gains(new, alone)
    if not above_el:
        return
    for g, (group, least) in enumerate((("foliated", 86.0), ("bare", 67.5))):
        mean = average(chosen.groups[g] for chosen in new)
        yield Bar(f"land mines, {group}: AUC {least:g}", f"{mean:.1f}", mean >= least)
        met = above_el[g].mean >= 3 and above_el[g].above_zero
        yield Bar(f"land mines, {group}: 3 points above EL, interval above zero", str(above_el[g]), met)
        asked = f"land mines, {group}: not below training alone"
        yield Bar(asked, str(above_alone[g]), above_alone[g].mean >= 0)


def _heart(study: FederationRuns) -> Iterator[Bar]:
    above = gains(study.chosen("heart-disease", NAME), study.chosen("heart-disease", "alone"))
    for hospital, gain in zip(FEDERATIONS["heart-disease"].groups, above, strict=False):
        yield Bar(f"heart disease, {hospital}: AUC at most 2 points below training alone", str(gain), gain.mean >= -2)


def _domains(study: FederationRuns, name: str) -> Iterator[Bar]:
    gain = worst_gain(study.chosen(name, NAME), study.chosen(name, "EL"))
    if gain.points:
        yield Bar(f"{name}: worst domain above EL's, interval above zero", str(gain), gain.above_zero)


def harms(study: FederationRuns) -> list[list[str]]:
    """Every group that "farthest" serves worse than training alone or than EL, in the mean over splits: [federation,
    group, against whom, points]; the largest losses first."""
    found: list[tuple[Gain, list[str]]] = []
    for name, known in FEDERATIONS.items():
        for rival in ("alone", "EL"):
            above = gains(study.chosen(name, NAME), study.chosen(name, rival))
            for group, gain in zip(known.groups, above, strict=False):
                if gain.mean < 0:
                    found.append((gain, [name, group, rival, str(gain)]))
    return [line for _, line in sorted(found, key=lambda each: each[0].mean)]
