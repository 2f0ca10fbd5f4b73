"""What experiments are called where they stand beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from facade.analysis.table import short_keys
from facade.core.names import short_ones


def experiment_names(described: Sequence[Mapping[str, str]]) -> list[str]:
    """Of the labels of a table: the algorithm, and what sets experiments with the same one apart. (That each algorithm
    has a learning rate of its own is no difference between two experiments with one of them.)"""
    called = short_ones(own["algorithm"] for own in described)
    keys = dict(zip(described[0], short_keys(list(described[0])), strict=True))
    names = []
    for own in described:
        alike = [other for other in described if other["algorithm"] == own["algorithm"]]
        telling = [key for key, value in own.items() if any(other[key] != value for other in alike)]
        names.append(" ".join([called[own["algorithm"]], *(f"{keys[key]}={own[key]}" for key in telling)]))
    return names
