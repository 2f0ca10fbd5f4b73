"""The studies by name. To add one: its cases, its page, and a row here."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from facade.studies import (
    federations,
    federations_page,
    heterogeneity,
    heterogeneity_page,
    robustness,
    robustness_page,
)
from facade.studies.kept_lines import Case, KeptLines


class Study(NamedTuple):
    """Many runs of one question, and the page drawn from what they found."""

    cases: Callable[[KeptLines], list[Case]]
    """The runs, as far as what is kept tells which they are."""
    long_cases: Callable[[KeptLines], list[Case]]
    """Those on CIFAR-10, or on other images, which take minutes a run."""
    page: Callable[[KeptLines], str]
    """The page, from what is kept and from nothing else."""


def _whatever_is_kept(cases: Callable[[], list[Case]]) -> Callable[[KeptLines], list[Case]]:
    return lambda kept: cases()


STUDIES = {
    "federations": Study(federations.cases, federations.image_cases, federations_page.drawn),
    "heterogeneity": Study(
        _whatever_is_kept(heterogeneity.cases), _whatever_is_kept(heterogeneity.cifar_cases), heterogeneity_page.drawn
    ),
    "robustness": Study(
        _whatever_is_kept(robustness.cases), _whatever_is_kept(robustness.cifar_cases), robustness_page.drawn
    ),
}
