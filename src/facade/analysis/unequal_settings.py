"""Settings of training that algorithms were not given alike, so that they are not compared on equal terms."""

from __future__ import annotations

from collections.abc import Sequence

from facade.analysis.experiment_names import in_short
from facade.core.names import short_ones
from facade.experiment.decisive_settings import setting
from facade.runs.history import History

_PLURALS = {"training.lr": "Learning rates"}
"""Settings that have a plain name."""


def unequal(groups: Sequence[Sequence[History]], key: str) -> str | None:
    """In words, that a setting was tried with other values for one algorithm than for another, so that they are not
    compared on equal terms; None where it was not."""
    tried: dict[str, dict[str, None]] = {}
    for group in groups:
        tried.setdefault(group[0].algorithm, {})[in_short(setting(group[0].point, key))] = None
    if len({frozenset(values) for values in tried.values()}) == 1:
        return None
    called = short_ones(tried)
    each = ", ".join(f"{called[name]} {' and '.join(values)}" for name, values in tried.items())
    return f"{_PLURALS.get(key, f'Values of {key}')} differ: {each}"
