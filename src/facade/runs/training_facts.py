"""Whether training came to anything, from the rows of a run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from facade.core.types import Row

_FALLEN = 0.99
"""A loss below this share of that of guessing has fallen; what is above may be noise."""


def mean_train_loss(rows: Iterable[Row]) -> float | None:
    """The mean over the nodes of one round; None where no row has it."""
    known = [row["train_loss"] for row in rows if row.get("train_loss") is not None]
    return sum(known) / len(known) if known else None


def training_facts(losses: Sequence[float | None], classes: int) -> Row:
    """`never_learned` with the loss of the best tenth of the rounds and that of guessing, where it never fell below
    that; else nothing. `losses`: the mean over nodes, round by round."""
    known, guessing = [loss for loss in losses if loss is not None], math.log(classes)
    if not known:
        return {}
    tenths = np.array_split(known, min(10, len(known)))  # single rounds of few samples go up and down
    lowest = min(float(tenth.mean()) for tenth in tenths)
    return {} if lowest < _FALLEN * guessing else {"never_learned": {"lowest_loss": lowest, "guessing": guessing}}


def never_learned_in_words(facts: Mapping[str, Any]) -> str:
    """The sentence on a run that learned nothing, from what `training_facts` says of it."""
    return (
        f"The training loss never fell below that of guessing ({facts['guessing']:.3f}); in the best rounds it was"
        f" {facts['lowest_loss']:.3f}. Nothing was learned; try another training.lr."
    )
