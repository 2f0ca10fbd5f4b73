"""The numbers of a run, summed up from its rows as they come."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from facade.analysis.metrics import Counts
from facade.core.types import Row
from facade.runs.honest_nodes import of_honest
from facade.runs.result import health_of_heads, judge, under_other_prior
from facade.runs.survey_facts import SurveyFacts, survey_of
from facade.runs.training_facts import mean_train_loss, training_facts


class RunningSummary:
    """Takes in one moment after the other, and keeps no more than sums and the rows of the last ones."""

    def __init__(self, bad: Sequence[int] = ()) -> None:
        """The numbers of the nodes `bad`, which attack, are left out."""
        self._bad = bad
        self._bytes = 0
        self._losses: list[float | None] = []
        self._survey: SurveyFacts | None = None
        self._first = min(set(range(len(bad) + 1)).difference(bad))
        """The honest node whose word on the survey is taken."""
        self._last: list[Row] = []
        """Of the last round."""
        self._finals: list[Row] = []

    @property
    def finals(self) -> list[Row]:
        """The rows of honest nodes after the final exchange."""
        return list(of_honest(self._finals, self._bad))

    def add(self, rows: Sequence[Row]) -> None:
        """Take in the rows of the next moment."""
        if rows[0]["kind"] == "final":
            self._finals += rows
        elif rows[0]["kind"] == "round" and (honest := list(of_honest(rows, self._bad))):
            self._bytes += sum(row["bytes"] for row in honest)
            self._losses.append(mean_train_loss(honest))
            self._survey = survey_of((row for row in honest[:1] if row["node"] == self._first), self._survey)
            self._last = honest

    def facts(self, cluster: Counts | None, sites: Sequence[str] | None = None) -> Row:
        """The numbers of the finished run; `sites` are the names of all nodes."""
        finals = self.finals
        of_finals = None if cluster is None else cluster[[row["node"] for row in finals]]
        return (
            judge(self._finals, cluster, self._bad, sites)
            | under_other_prior(finals, of_finals)
            | health_of_heads(self._last)
            | training_facts(self._losses, len(finals[0]["confusion"]))
            | ({} if self._survey is None else {"survey": dataclasses.asdict(self._survey)})
            | {
                "bytes_per_node": self._bytes / len(finals),
                "bytes_final": sum(row["bytes"] for row in finals) / len(finals),
            }
        )
