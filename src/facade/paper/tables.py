"""The paper's tables, ours beside the published numbers."""

from __future__ import annotations

from typing import Any

import altair as alt

from facade.analysis.statistics import Estimate, estimates
from facade.learning.models import MODELS
from facade.paper.figures import ALGORITHM_NAMES
from facade.paper.published import FINAL, RATES, SIZES, Printed
from facade.paper.settings import CIFAR, FLICKR, IMAGENETTE, RIVALS, Part, Scale, Setting, experiment
from facade.paper.study import PublishedComparison, StudyRuns
from facade.report.panels import Panel

COLUMNS = {
    "cluster_0": ("majority", "majority", 100.0, 2),
    "cluster_1": ("minority", "minority", 100.0, 2),
    "all": ("all", "all", 100.0, 2),
    "dp": ("dp", "DP", 1.0, 4),
    "eo": ("eo", "EO", 1.0, 4),
    "fair_accuracy_of_means": ("fair", "fair", 100.0, 2),
}
"""Ours, theirs, heading, scale, digits."""


def results(runs: StudyRuns) -> list[PublishedComparison]:
    """Tables II to IV, number by number; of DAC also what a final exchange leaves."""
    lines = []
    for part, histories in runs.by_part.items():
        for subject in runs.comparison(part).subjects:
            printed = FINAL.get((part.setting.source, part.clusters, subject.algorithm))
            lines += _numbers(f"{part.clusters} {ALGORITHM_NAMES[subject.algorithm]}", subject.estimates, printed)
        exchanged = [run for run in histories if run.algorithm == "dac"]
        if exchanged:
            lines += _numbers(f"{part.clusters} DAC, exchanged", estimates(exchanged), None)
    return lines


def _numbers(who: str, estimates: dict[str, Estimate], printed: Printed | None) -> list[PublishedComparison]:
    lines = []
    for ours, (theirs, heading, scale, digits) in COLUMNS.items():
        estimate = estimates.get(ours)
        if ours == "fair_accuracy_of_means" and estimate is None:  # one seed is its own mean
            estimate = estimates.get("fair_accuracy")
        value = None if printed is None else float(getattr(printed, theirs))
        lines.append(PublishedComparison(f"{who} {heading}", estimate, value, scale, digits))
    return lines


def results_table(runs: StudyRuns) -> list[Panel]:
    """Tables II to IV as a picture: ours, below it what was published."""
    rows = []
    for line in results(runs):
        what, ours, published, _ = line.cells
        row, heading = what.rsplit(" ", 1)
        rows.append({"row": row, "column": heading, "ours": ours, "published": f"({published})"})
    return [_table(rows, [heading for _, heading, _, _ in COLUMNS.values()], "ours, and (published)")]


def _table(rows: list[dict[str, Any]], columns: list[str], title: str) -> Panel:
    lines = list(dict.fromkeys(row["row"] for row in rows))
    base = alt.Chart().encode(
        alt.X(
            "column:N", title=None, sort=columns, axis=alt.Axis(orient="top", labelAngle=0, domain=False, ticks=False)
        ),
        alt.Y("row:N", title=None, sort=lines, axis=alt.Axis(domain=False, ticks=False)),
    )
    ours = base.mark_text(dy=-6, fontSize=11).encode(alt.Text("ours:N"))
    published = base.mark_text(dy=7, fontSize=10, opacity=0.7).encode(alt.Text("published:N"))
    return Panel(alt.layer(ours, published), rows, title, 34 * len(lines), wide=True, width=110 * len(columns))


# Table I


def _settings() -> list[tuple[Setting, Part]]:
    return [(CIFAR, Part(CIFAR, "30:2")), (IMAGENETTE, Part(IMAGENETTE, "20:4")), (FLICKR, Part(FLICKR, "14:2"))]


_SIZES = ("nodes", "rounds", "steps", "batch", "weights")
_DATA = {"cifar10": ((3, 32, 32), 10), "imagenette": ((3, 64, 64), 10), "flickr-mammals": ((3, 64, 64), 41)}
"""Shape of an image and number of classes."""


def _weights(setting: Setting) -> int:
    model = MODELS[setting.model](*_DATA[setting.source])
    return sum(weight.numel() for weight in model.parameters())


def rates(runs: StudyRuns) -> list[PublishedComparison]:
    """Table I: sizes and learning rates, as resolved experiments have them; nothing here is ever reduced."""
    lines = []
    for setting, part in _settings():
        described = experiment(part, "facade", None, 1, Scale())
        training = described.training
        sizes = (described.n, training.rounds, training.steps, training.batch, _weights(setting))
        for word, ours, theirs in zip(_SIZES, sizes, SIZES[setting.source], strict=True):
            lines.append(PublishedComparison(f"{setting.source} {word}", Estimate([float(ours)]), float(theirs), 1, 0))
        for name in RIVALS:
            rate = experiment(part, name, None, 1, Scale()).training.lr
            published = RATES[setting.source][name]
            lines.append(
                PublishedComparison(f"{setting.source} {ALGORITHM_NAMES[name]}", Estimate([rate]), published, 1, 4)
            )
    return lines


def rates_table(runs: StudyRuns) -> list[Panel]:
    """Table I as a picture."""
    rows = []
    for line in rates(runs):
        what, ours, published, _ = line.cells
        source, column = what.split(" ")
        rows.append({"row": source, "column": column, "ours": ours, "published": f"({published})"})
    columns = [*_SIZES, *(ALGORITHM_NAMES[name] for name in RIVALS)]
    return [_table(rows, columns, "sizes and learning rates, ours and (published)")]
