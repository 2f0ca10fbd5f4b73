"""What experiments are called where they stand beside each other."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from facade.core.names import short_ones
from facade.experiment.decisive_settings import setting
from facade.runs.history import History

_LONGEST = 60
"""Characters of a value in a label; a list of edges may have thousands."""


def labels(groups: Sequence[Sequence[History]]) -> list[dict[str, str]]:
    """Per experiment the algorithm, and whatever else the experiments differ in. Fields that belong
    to one algorithm are no difference to another."""
    points = [group[0].point for group in groups]
    differing = [key for key in dict.fromkeys(key for point in points for key in point) if _differs(key, points)]
    return [
        {"algorithm": str(point["algorithm.name"])} | {key: in_short(setting(point, key)) for key in differing}
        for point in points
    ]


def short_keys(keys: Sequence[str]) -> list[str]:
    """Keys without their sections (of model.name, the section), where that leaves no two alike."""
    last = [key.removesuffix(".name").rpartition(".")[2] for key in keys]
    return [short if last.count(short) == 1 else key for key, short in zip(keys, last, strict=True)]


def in_short(value: Any) -> str:
    """A setting's value as a label has it: one that would fill lines by its beginning and a hash."""
    text = str(value)
    if len(text) <= _LONGEST:
        return text
    return f"{text[:20]}... ({hashlib.sha256(text.encode()).hexdigest()[:8]})"


def _differs(key: str, points: Sequence[dict[str, Any]]) -> bool:
    if key == "algorithm.name":
        return False
    if not key.startswith("algorithm."):
        return len({str(point.get(key)) for point in points}) > 1
    pairs = {(point["algorithm.name"], str(point[key])) for point in points if key in point}
    return len(pairs) > len({name for name, _ in pairs})


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
