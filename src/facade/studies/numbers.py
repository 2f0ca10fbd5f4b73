"""The runs of a study by question, how numbers over their seeds are written, and what a study had to show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from facade.analysis.statistics import student_interval
from facade.paper.reproduction_tables import table
from facade.studies.kept_lines import Case, KeptLines, KeptRun


class KeptStudy:
    """The cases of a study, and their runs as far as they are kept."""

    def __init__(self, kept: KeptLines, cases: Sequence[Case]) -> None:
        self.kept = kept
        self.cases = cases

    def runs(self, part: str, label: str, **settings: Any) -> list[KeptRun]:
        """Of the one case with this label and these settings (`data_clusters` for data.clusters; None: not set)."""
        wanted = {name.replace("_", ".", 1): value for name, value in settings.items()}
        (case,) = (
            case
            for case in self.cases
            if (case.part, case.label) == (part, label)
            and all(case.settings.get(name) == value for name, value in wanted.items())
        )
        return self.kept.runs(case)


class Bar(NamedTuple):
    """One thing that was asked for."""

    what: str
    seen: str
    met: bool


def bar_table(bars: Iterable[Bar]) -> str:
    """Every bar with what was seen; those that were missed come first."""
    lines = [[bar.what, bar.seen, "yes" if bar.met else "**no**"] for bar in sorted(bars, key=lambda bar: bar.met)]
    return table(["asked for", "seen", "met"], lines)


def average(values: Iterable[float]) -> float:
    """The mean; NaN of nothing."""
    known = list(values)
    return sum(known) / len(known) if known else float("nan")


def mean(runs: list[KeptRun], cluster: int) -> float:
    """Accuracy of a cluster in percent, over seeds."""
    return average(run.clusters[cluster] for run in runs)


def settled(runs: list[KeptRun]) -> int:
    """How many runs settled."""
    return sum(bool(run.settled) for run in runs)


def means(runs: list[KeptRun]) -> str:
    """Accuracies of all clusters."""
    if not runs:
        return "-"
    return " / ".join(f"{mean(runs, c):.1f}" for c in range(len(runs[0].clusters)))


def right(runs: list[KeptRun]) -> str:
    """In how many runs there are as many heads in use as clusters."""
    return f"{sum(run.heads == len(run.clusters) for run in runs)} of {len(runs)}" if runs else "-"


def cell(runs: list[KeptRun]) -> str:
    """Runs that settled, the accuracy of every cluster with half its 95 % interval, and runs that diverged."""
    if not runs:
        return "-"
    clusters = range(len(runs[0].clusters))
    accuracies = " / ".join(interval(run.clusters[c] for run in runs) for c in clusters)
    if lost := sum(run.diverged for run in runs):
        accuracies += f" ({lost} diverged)"
    chosen = any(run.choice is not None for run in runs) and len(clusters) > 1
    return f"{settled(runs)}/{len(runs)} · {accuracies}" if chosen else accuracies


def interval(values: Iterable[float]) -> str:
    """Mean, and half of the 95 % interval (Student's t) where there are several values."""
    points: list[float | None] = list(values)
    if not points:
        return "-"
    mean, around = average(point for point in points if point is not None), student_interval(points)
    return f"{mean:.1f}" if around is None else f"{mean:.1f} ± {(around[1] - around[0]) / 2:.1f}"
