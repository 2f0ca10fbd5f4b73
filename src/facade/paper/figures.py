"""The paper's figures over rounds, algorithms and cluster sizes, in its arrangement."""

from __future__ import annotations

from typing import Any

import altair as alt

from facade.analysis.statistics import Estimate, cost_to
from facade.paper.published import FINAL, HIGHEST_FAIR, LABELS_MINORITY, SAVED, TARGETS
from facade.paper.settings import QUICK_TARGET, Part
from facade.paper.study import PublishedComparison, StudyRuns
from facade.report import charts, facts
from facade.report.facts import Comparison, Rows
from facade.report.panels import Panel

ALGORITHM_NAMES = {"el": "EL", "dac": "DAC", "deprl": "DePRL", "facade": "FACADE", "local": "alone", "dpsgd": "D-PSGD"}


def names_of(comparison: Comparison) -> list[str]:
    """Labels of the experiments."""
    return [subject.label for subject in comparison.subjects]


def curves(runs: StudyRuns) -> list[Panel]:
    """Accuracy over rounds: a row of panels per cluster, a column per division into clusters, all of one height
    so that clusters can be compared."""
    panels = []
    comparisons = {part: runs.comparison(part) for part in runs.by_part}
    rows = {part: facts.over_rounds(comparison) for part, comparison in comparisons.items()}
    reach = charts.reach_of([row for part, c in comparisons.items() for row in rows[part] if row["what"] in c.clusters])
    among = list(dict.fromkeys(name for comparison in comparisons.values() for name in names_of(comparison)))
    for c in range(max(len(comparison.clusters) for comparison in comparisons.values())):
        for part, comparison in comparisons.items():
            name = comparison.clusters[c]
            chart = charts.over_rounds(names_of(comparison), "accuracy, %", reach=reach, among=among)
            panels.append(Panel(chart, charts.rows_of(rows[part], name), f"{part.title}: {name}"))
    return panels


def fair_curves(runs: StudyRuns) -> list[Panel]:
    """Fair accuracy over rounds, a panel per division into clusters."""
    panels = []
    for part in runs.by_part:
        comparison = runs.comparison(part)
        rows = charts.rows_of(facts.over_rounds(comparison), "fair_accuracy")
        panels.append(Panel(charts.over_rounds(names_of(comparison), "fair accuracy, %"), rows, part.title))
    return panels


def clusters_of_one(runs: StudyRuns) -> list[Panel]:
    """The clusters of one algorithm in one panel: how far they drift apart."""
    panels = []
    for part in runs.by_part:
        comparison = runs.comparison(part)
        rows = [row | {"who": row["what"]} for row in facts.over_rounds(comparison)]
        drawn = [row for row in rows if row["who"] in comparison.clusters]
        title = f"{ALGORITHM_NAMES[part.algorithms[0]]}, {part.title}"
        panels.append(Panel(charts.over_rounds(comparison.clusters, "accuracy, %"), drawn, title))
    return panels


def cluster_numbers(runs: StudyRuns) -> list[PublishedComparison]:
    """Final accuracies of both clusters."""
    lines = []
    for part, subject in runs.subjects:
        printed = FINAL.get((part.setting.source, part.clusters, subject.algorithm))
        if printed is None or part.skew != "rotate":
            continue
        for cluster, value in (("majority", printed.majority), ("minority", printed.minority)):
            what = f"{part.title} {ALGORITHM_NAMES[subject.algorithm]} {cluster}"
            number = "cluster_0" if cluster == "majority" else "cluster_1"
            lines.append(PublishedComparison(what, subject.estimates.get(number), value, 100))
    return lines


def label_numbers(runs: StudyRuns) -> list[PublishedComparison]:
    """Accuracy of the minority with label clusters 30:2."""
    part = next(part for part in runs.by_part if part.clusters == "30:2")
    return [
        PublishedComparison(
            f"{part.title} {ALGORITHM_NAMES[name]} minority",
            runs.subject(part, name).estimates.get("cluster_1"),
            value,
            100,
            1,
        )
        for name, value in LABELS_MINORITY.items()
    ]


# Bars and boxes


def _bar_axes(names: list[str], y: str) -> list[Any]:
    return [
        alt.X("part:N", title=None, sort=None, axis=alt.Axis(labelAngle=0)),
        alt.XOffset("who:N", sort=names),
        alt.Y("mean:Q", title=y),
        charts.colour(names),
    ]


def bars(names: list[str], y: str) -> alt.LayerChart | alt.FacetChart:
    """Grouped bars with whiskers over seeds; a black diamond where the paper gives a number."""
    base = alt.Chart().encode(*_bar_axes(names, y))
    whisker = base.mark_rule(color="black").encode(alt.Y("low:Q", title=y), alt.Y2("high"), color=alt.value("black"))
    diamond = base.mark_point(shape="diamond", filled=True, size=46).encode(
        alt.Y("published:Q", title=y), color=alt.value("black")
    )
    return alt.layer(base.mark_bar(), whisker, diamond.transform_filter("datum.published != null"))


def _bar(part: Part, who: str, estimate: Estimate | None, scale: float, published: float | None) -> dict[str, Any]:
    """One bar; none unless every seed has the number."""
    values = [] if estimate is None or estimate.mean is None else [scale * value for value in estimate.known]
    mean = sum(values) / len(values) if values else None
    spread = {"low": min(values, default=None), "high": max(values, default=None)}
    return {"part": part.clusters, "who": who, "mean": mean, "published": published} | spread


def fair_bars(runs: StudyRuns) -> list[Panel]:
    """Highest observed fair accuracy, a panel per data set."""
    return _bars_per_source(runs, "highest fair accuracy, %", _highest_fair)


def _highest_fair(runs: StudyRuns, part: Part) -> Rows:
    return [
        _bar(part, s.label, s.estimates.get("highest_fair_accuracy"), 100, published)
        for s in runs.comparison(part).subjects
        # Diamonds would invite a comparison that a quick run does not allow.
        for published in [None if runs.scale.quick else _printed_highest(part, s.algorithm)]
    ]


def _printed_highest(part: Part, algorithm: str) -> float | None:
    return HIGHEST_FAIR.get((part.setting.source, part.skew, part.clusters, algorithm))


def fair_numbers(runs: StudyRuns) -> list[PublishedComparison]:
    """Highest fair accuracies that the paper names."""
    lines = []
    for part, subject in runs.subjects:
        value = _printed_highest(part, subject.algorithm)
        what = f"{part.title} {ALGORITHM_NAMES[subject.algorithm]} highest fair accuracy"
        lines.append(PublishedComparison(what, subject.estimates.get("highest_fair_accuracy"), value, 100, 1))
    return lines


def _bars_per_source(runs: StudyRuns, y: str, rows_of: Any) -> list[Panel]:
    panels = []
    for source in dict.fromkeys(part.setting.source for part in runs.by_part):
        parts = [part for part in runs.by_part if part.setting.source == source]
        rows = [row for part in parts for row in rows_of(runs, part)]
        names = list(dict.fromkeys(row["who"] for row in rows))
        panels.append(Panel(bars(names, y), rows, source))
    return panels


def boxes(runs: StudyRuns) -> list[Panel]:
    """Demographic parity and equalized odds of the final models, over seeds."""
    panels = []
    for source in dict.fromkeys(part.setting.source for part in runs.by_part):
        for number, title in (("dp", "demographic parity"), ("eo", "equalized odds")):
            rows: Rows = [
                {"part": part.clusters, "who": subject.label, "mean": value}
                for part, subject in runs.subjects
                if part.setting.source == source
                for value in (subject.estimates[number].known if number in subject.estimates else [])
            ]
            names = list(dict.fromkeys(row["who"] for row in rows))
            axes = _bar_axes(names, f"{title}, 0 is fair")
            box = alt.Chart().mark_boxplot(extent="min-max", size=12).encode(*axes)
            points = alt.Chart().mark_point(filled=True, size=18).encode(*axes)
            panels.append(Panel(alt.layer(box, points), rows, f"{source}: {title}"))
    return panels


def odds_numbers(runs: StudyRuns) -> list[PublishedComparison]:
    """DP and EO as the tables print them."""
    lines = []
    for part, subject in runs.subjects:
        printed = FINAL.get((part.setting.source, part.clusters, subject.algorithm))
        for number in ("dp", "eo"):
            value = None if printed is None else float(getattr(printed, number))
            what = f"{part.title} {ALGORITHM_NAMES[subject.algorithm]} {number.upper()}"
            lines.append(PublishedComparison(what, subject.estimates.get(number), value, 1, 4))
    return lines


# Bytes


def target_of(runs: StudyRuns, part: Part) -> float:
    """The accuracy whose price is asked for; a quick run has a target of its own."""
    return QUICK_TARGET if runs.scale.quick else TARGETS[part.setting.source]


def _bytes_to(runs: StudyRuns, part: Part, algorithm: str) -> Estimate:
    costs = [cost_to(run, target_of(runs, part)) for run in runs.subject(part, algorithm).runs]
    return Estimate([None if cost is None else cost.bytes for cost in costs])


def bytes_bars(runs: StudyRuns) -> list[Panel]:
    """Megabytes a node hears until the target is reached; no bar where a seed does not reach it."""

    def rows_of(runs: StudyRuns, part: Part) -> Rows:
        return [_bar(part, name, _bytes_to(runs, part, name), 1e-6, None) for name in part.algorithms]

    return _bars_per_source(runs, "MB per node to the target", rows_of)


def bytes_numbers(runs: StudyRuns) -> list[PublishedComparison]:
    """How many percent of the bytes FACADE saves."""
    lines = []
    for part in runs.by_part:
        ours = _bytes_to(runs, part, "facade").mean
        for name in ("el", "dac"):
            theirs = _bytes_to(runs, part, name).mean
            saved = None if ours is None or not theirs else Estimate([100 * (1 - ours / theirs)])
            published = SAVED.get((part.setting.source, part.clusters, name))
            lines.append(
                PublishedComparison(
                    f"{part.title} bytes saved against {ALGORITHM_NAMES[name]}, %", saved, published, 1, 1
                )
            )
    return lines


def bytes_sentences(runs: StudyRuns) -> list[str]:
    """What the targets were, and who missed them."""
    sentences = []
    for part in runs.by_part:
        missed = [ALGORITHM_NAMES[name] for name in part.algorithms if _bytes_to(runs, part, name).mean is None]
        if missed:
            sentences.append(
                f"{part.title}: {', '.join(missed)} did not reach {target_of(runs, part):.0%} with every seed."
            )
    return sentences


# Beyond the paper


def shrinking(runs: StudyRuns) -> list[Panel]:
    """What happens to the smaller cluster, to fairness and to everyone as it shrinks."""
    wanted = {
        "cluster_1": "accuracy of the smaller cluster",
        "fair_accuracy": "fair accuracy",
        "all": "accuracy of all",
    }
    panels = []
    for number, title in wanted.items():
        rows = [_bar(part, subject.label, subject.estimates.get(number), 100, None) for part, subject in runs.subjects]
        names = list(dict.fromkeys(row["who"] for row in rows))
        at = alt.X("part:N", title="nodes in the two clusters", sort=None, axis=alt.Axis(labelAngle=0))
        y = alt.Y("mean:Q", title=f"{title}, %", scale=alt.Scale(zero=False))
        base = alt.Chart().encode(at, charts.colour(names))
        band = base.mark_area(opacity=0.15).encode(alt.Y("low:Q", scale=alt.Scale(zero=False)), alt.Y2("high"))
        marks = base.mark_point(filled=True, size=60).encode(y, charts.shape(names))
        panels.append(Panel(alt.layer(band, base.mark_line().encode(y), marks), rows, title.capitalize()))
    return panels


def prices(runs: StudyRuns) -> list[Panel]:
    """Worst cluster, bytes and time of every algorithm, a panel per division into clusters."""
    figures = [(part, charts.pareto(runs.comparison(part))) for part in runs.by_part]
    return [Panel(p.chart, p.rows, part.title, p.height) for part, figure in figures for p in figure.panels]
