"""Which nodes of a run are honest: all numbers of a run are theirs, and attackers are left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from facade.core.types import Ids, Row

_MOST_LISTED = 12
"""Attackers that are named one by one."""


def attackers(experiment: Mapping[str, Any]) -> list[int]:
    """The attackers of a resolved experiment, given as nested dicts; an older one has none."""
    return sorted(set(experiment.get("attack", {}).get("nodes", [])))


def honest_nodes(experiment: Mapping[str, Any], n: int) -> Ids:
    """The honest ones of n nodes, ascending."""
    return np.setdiff1d(np.arange(n), attackers(experiment))


def of_honest(rows: Iterable[Row], bad: Sequence[int]) -> Iterable[Row]:
    """The rows of all but the attackers."""
    if not bad:
        return rows
    left_out = frozenset(bad)
    return (row for row in rows if row["node"] not in left_out)


def attack_in_words(experiment: Mapping[str, Any], n: int) -> str | None:
    """A sentence, without its full stop, on whose accuracies are shown and who attacks how; None where nobody does."""
    bad = attackers(experiment)
    if not bad:
        return None
    attack, honest = experiment["attack"], n - len(bad)
    return (
        f"Accuracies are of the {honest} honest node{'' if honest == 1 else 's'}; {_named(bad)}:"
        f" {attack['kind']} from round {attack['start']} on"
    )


def _named(bad: Sequence[int]) -> str:
    if len(bad) > _MOST_LISTED:
        return f"{len(bad)} others attack, nodes {', '.join(map(str, bad[:_MOST_LISTED]))} and so on"
    if len(bad) == 1:
        return f"node {bad[0]} attacks"
    return f"nodes {', '.join(map(str, bad[:-1]))} and {bad[-1]} attack"
