"""What the rows of a run say, moment by moment, as arrays: a moment is one round, evaluation or final exchange of all
nodes. It is gathered from rows as they are made, or as they are read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from facade.analysis.measures import recorded
from facade.analysis.metrics import Counts
from facade.core.plan import OTHER_PRIOR
from facade.core.types import Row
from facade.runs.honest_nodes import of_honest
from facade.runs.rows import by_moment, without_collecting
from facade.runs.survey_facts import SurveyFacts, survey_of
from facade.runs.training_facts import mean_train_loss

_WHOLE = (np.uint8, np.int8, np.int16, np.int32, np.int64)
"""What counts are kept as: the first that holds them."""
_COUNTED = ("confusion", "choice", "validation_confusion", *(f"{other}_confusion" for other in OTHER_PRIOR))


class Tested(NamedTuple):
    """All honest nodes, tested at one moment."""

    round: int
    values: dict[str, NDArray[Any]]
    """[n, ...] what their rows hold, by its name there; measures as `analysis.measures.recorded` lays them out."""


class Incomplete(NamedTuple):
    """A moment of which the rows of some nodes are missing."""

    round: int
    kind: str
    nodes: int
    """Of how many there are rows."""


class Moments:
    """All moments that are complete; numbers are those of honest nodes."""

    def __init__(self, n: int, bad: Sequence[int] = ()) -> None:
        """A run of n nodes, of which `bad` attack."""
        self.n = n
        self._bad = bad
        self.rounds: list[int] = []
        self.heard: list[float] = []
        """Payload bytes that a node heard in each of the rounds, the mean over nodes."""
        self.train_loss: list[float | None] = []
        """The mean over nodes in each of them."""
        self.choice: list[Counts] = []
        """[n] the head that each node chose in each of them, attackers included; nothing without heads."""
        self.evaluations: list[Tested] = []
        self.final: Tested | None = None
        self.heard_finally = 0.0
        """Payload bytes of the final exchange, the mean over nodes."""
        self.survey: SurveyFacts | None = None
        """What the first honest node noted of the survey, where there is one."""
        self.incomplete: list[Incomplete] = []

    def add(self, rows: Sequence[Row]) -> None:
        """Take in the rows of the next moment, in the order of nodes."""
        round, kind, honest = rows[0]["round"], rows[0]["kind"], list(of_honest(rows, self._bad))
        if len(rows) != self.n:
            self.incomplete.append(Incomplete(round, kind, len(rows)))
        elif kind == "round":
            self.rounds.append(round)
            self.heard.append(_bytes(honest))
            self.train_loss.append(mean_train_loss(honest))
            if "choice" in honest[0]:
                self.choice.append(small([row["choice"] for row in rows]))
            self.survey = survey_of(honest[:1], self.survey)
        elif kind == "evaluation":
            self.evaluations.append(_tested(honest))
        elif kind == "final":
            self.final, self.heard_finally = _tested(honest), _bytes(honest)


def gathered(rows: Iterable[Row], n: int, bad: Sequence[int] = ()) -> Moments:
    """The moments of rows that are there already."""
    moments = Moments(n, bad)
    with without_collecting():
        for moment in by_moment(rows):
            moments.add(moment)
    return moments


def _bytes(rows: Sequence[Row]) -> float:
    """Payload bytes, the mean over nodes."""
    return float(sum(row["bytes"] for row in rows) / len(rows))


def _tested(rows: Sequence[Row]) -> Tested:
    values = {name: small([row[name] for row in rows]) for name in _COUNTED if name in rows[0]}
    if "validation_loss" in rows[0]:
        values["validation_loss"] = np.array([row["validation_loss"] for row in rows], np.float64)
    beside = {name: recorded(rows, name) for name in ("measures", "validation_measures")}
    return Tested(rows[0]["round"], values | {name: each for name, each in beside.items() if each is not None})


def small(counts: Sequence[Any]) -> Counts:
    """An array of integers of as few bytes as hold them."""
    array = np.array(counts, np.int64)
    low, high = array.min(initial=0), array.max(initial=0)
    return array.astype(next(kind for kind in _WHOLE if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max))
