"""The finished runs of a study, and how its numbers stand beside the published ones."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from facade.analysis.statistics import Estimate
from facade.paper.settings import Part, Scale
from facade.report.facts import Comparison, Subject, comparisons
from facade.report.panels import Panel
from facade.runs.history import History


@dataclass(frozen=True)
class StudyRuns:
    """The finished runs of a study: what there is to draw."""

    by_part: dict[Part, list[History]]
    scale: Scale
    _comparisons: dict[Part, Comparison] = field(default_factory=dict, repr=False)
    """Kept with the intervals that were asked for, since every picture and table asks again."""

    def comparison(self, part: Part) -> Comparison:
        """A part's runs, experiment by experiment."""
        if part not in self._comparisons:
            (self._comparisons[part],) = comparisons([as_compared(run) for run in self.by_part[part]])
        return self._comparisons[part]

    @property
    def subjects(self) -> list[tuple[Part, Subject]]:
        """Every experiment, after the part it belongs to."""
        return [(part, subject) for part in self.by_part for subject in self.comparison(part).subjects]

    def subject(self, part: Part, algorithm: str) -> Subject:
        """One algorithm of a part."""
        return next(s for s in self.comparison(part).subjects if s.algorithm == algorithm)


def as_compared(run: History) -> History:
    """The run whose final models stand beside the published ones: those after the final exchange; of DAC those
    before it, since one model for everyone would undo what DAC does."""
    return replace(run, final=run.evaluations[-1], heard_finally=0.0) if run.algorithm == "dac" else run


@dataclass(frozen=True)
class PublishedComparison:
    """One number of ours and what the paper printed."""

    what: str
    ours: Estimate | None
    published: float | None
    scale: float = 1.0
    digits: int = 2

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """What, ours, published, difference; as they are printed."""
        mean = None if self.ours is None else self.ours.mean
        ours = "-" if mean is None else f"{self.scale * mean:.{self.digits}f}"
        if self.ours is not None and mean is not None and len(self.ours.points) > 1:
            ours += f" ± {self.scale * (self.ours.std or 0.0):.{self.digits}f}"
        published = "-" if self.published is None else f"{self.published:.{self.digits}f}"
        if mean is None or self.published is None:
            return self.what, ours, published, "-"
        return self.what, ours, published, f"{self.scale * mean - self.published:+.{self.digits}f}"


def to_csv(lines: list[PublishedComparison], note: str) -> str:
    """The comparison as a file; the note is its last line."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["what", "ours", "published", "difference"])
    writer.writerows(line.cells for line in lines)
    if note:
        writer.writerow([note, "", "", ""])
    return file.getvalue()


def no_numbers(runs: StudyRuns) -> list[PublishedComparison]:
    """The comparison of a study whose figure the paper gives no numbers of."""
    return []


def no_sentences(runs: StudyRuns) -> list[str]:
    """The sentences of a study that needs none."""
    return []


@dataclass(frozen=True)
class Study:
    """One figure or table."""

    id: str
    title: str
    parts: tuple[Part, ...]
    draw: Callable[[StudyRuns], list[Panel]]
    compare: Callable[[StudyRuns], list[PublishedComparison]] = no_numbers
    say: Callable[[StudyRuns], list[str]] = no_sentences
    columns: int = 3
    reduced: Callable[[Scale], str] | None = field(default=None)
    """What a reduction did, for studies that have no parts."""

    def note(self, scale: Scale) -> str:
        """What was reduced; empty for the paper's own effort."""
        return scale.note(self.parts) if self.reduced is None else self.reduced(scale)
