"""What became of the survey in which nodes find out which of them look alike, from the rows of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from facade.core.types import Row


@dataclass
class SurveyFacts:
    """One node's view, which the others share but for the few that were away."""

    over: int | None = None
    """The last round of the survey, counted from 1; None: it was not over."""
    found: int = 0
    """Groups of nodes that look alike, or have the same classes."""
    used: int = 0
    """Heads in the end: as many, or one."""
    decided: int | None = None
    """The round after which it was known what heads are worth, or that it is not asked."""
    worth: float | None = None
    """How much the head of its group lowers a node's loss, in nats, in the mean over groups."""

    @property
    def by_classes(self) -> bool:
        """Whether classes told groups apart: then heads are not on trial, and nobody waits for what they are worth."""
        return self.over is not None and self.decided == self.over and self.found > 1

    def add(self, row: Row) -> None:
        """Take in the next round's row of a node."""
        if not row["heads_found"]:
            return
        if self.over is None:
            self.over, self.found = row["round"] - 1, row["heads_found"]
        self.used = row["heads_found"]
        if self.decided is None and row["heads_worth"] is not None:
            self.decided, self.worth = row["round"] - 1, row["heads_worth"]


def survey_of(rows: Iterable[Row], before: SurveyFacts | None = None) -> SurveyFacts | None:
    """The facts, from the rows of one node's rounds, after those `before`; None for runs without a survey."""
    facts = before
    for row in rows:
        if "heads_found" in row:
            facts = facts or SurveyFacts()
            facts.add(row)
    return facts


def survey_in_words(survey: Mapping[str, Any] | SurveyFacts) -> str:
    """Which rounds were spent on what, and what came of it."""
    from facade.algorithms.seeding.trial import WORTH  # which loads torch; those who only read rows need not

    facts = survey if isinstance(survey, SurveyFacts) else SurveyFacts(**survey)
    if facts.over is None:
        return (
            "The survey of which nodes look alike was not over: nodes kept heads of their own. Train longer, or set"
            " algorithm.seeding = 'none'."
        )
    took = f"In rounds 1 to {facts.over} nodes trained heads of their own and found"
    if facts.found == 1:
        return f"{took} no groups that differ in looks: one head serves all."
    if facts.by_classes:
        return f"{took} {facts.found} groups by their classes: each has a head of its own."
    groups = f"{took} {facts.found} groups that differ in looks."
    if facts.worth is None:
        return f"{groups} The run ended before it was known what a head for each is worth."
    worth = f"a head for each lowers the loss by {max(facts.worth, 0):.2f} nats in the mean over groups"
    if facts.used == 1:
        return f"{groups} But {worth}, less than {WORTH:g}: after round {facts.decided} one head serves all."
    return f"{groups} There {worth}."
