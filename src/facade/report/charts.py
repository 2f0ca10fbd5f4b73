"""Every chart, defined once: for the page, for files, and for the figures of the paper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np

from facade.analysis.sites import groups_in_words
from facade.report import facts, site_charts, theme
from facade.report.facts import Comparison, Rows
from facade.report.panels import Figure, Panel
from facade.runs.history import History
from facade.runs.survey_facts import survey_in_words

Chart = alt.Chart | alt.LayerChart | alt.FacetChart

_BAND = 0.15
SEEDS_NOTE = (
    "Lines are means over seeds, bands reach from the lowest to the highest seed;"
    " the large mark at the end is the model after the final exchange."
)


def of_comparison(comparison: Comparison) -> list[Figure]:
    """All figures of a comparison, in the order in which a reader wants them."""
    rows = facts.over_rounds(comparison)
    if comparison.of_sites:
        figures = [site_charts.over_rounds(comparison), served(comparison, rows)]
    else:
        figures = [accuracy(comparison, rows), fair_accuracy(comparison, rows), odds(comparison, rows)]
    few = comparison.of_sites and len(comparison.runs[0].nodes) <= facts.MOST_NODES
    gains = site_charts.gains(comparison) if few else node_gains(comparison)
    figures += [traffic(comparison, rows), *heads(comparison), gains, pareto(comparison)]
    return [figure for figure in figures if figure.panels]


# Over rounds


def accuracy(comparison: Comparison, rows: Rows) -> Figure:
    """One panel per cluster, one line per experiment."""
    names = [subject.label for subject in comparison.subjects]
    reach = reach_of([row for row in rows if row["what"] in comparison.clusters])
    chart, word = over_rounds(names, comparison.measure.axis, reach=reach), _capital(comparison.measure.word)
    panels = [
        Panel(chart, drawn, f"{word} of {_with_article(name)}")
        for name in comparison.clusters
        if (drawn := rows_of(rows, name))
    ]
    return Figure("accuracy", f"{word} per cluster over rounds", SEEDS_NOTE, panels)


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def served(comparison: Comparison, rows: Rows) -> Figure:
    """Of sites, the worst and the mean, one line per experiment."""
    names, wanted = [subject.label for subject in comparison.subjects], _of_sites(comparison)
    reach = reach_of([row for row in rows if row["what"] in wanted])
    panels = [
        Panel(over_rounds(names, comparison.measure.axis, reach=reach), drawn, title)
        for what, title in wanted.items()
        if (drawn := rows_of(rows, what))
    ]
    return Figure("served", "The worst-served site, and all of them, over rounds", SEEDS_NOTE, panels)


def _of_sites(comparison: Comparison) -> dict[str, str]:
    """Numbers over all sites that are drawn, and their titles."""
    measure = comparison.measure
    worst = f"The site with the {'highest' if measure.lower_is_better else 'lowest'} {measure.word}"
    return {"worst_node": worst, "all": "Mean over all sites"}


def _with_article(name: str) -> str:
    return f"the {name}" if name in ("majority", "minority") else name


def rows_of(rows: Rows, what: str) -> Rows:
    """The rows of one number."""
    return [{k: v for k, v in row.items() if k != "what"} for row in rows if row["what"] == what]


def over_rounds(
    names: Sequence[str],
    y: str,
    x: str = "round",
    x_title: str = "round",
    *,
    reach: tuple[float, float] | None = None,
    among: Sequence[str] = (),
) -> Chart:
    """Lines with bands over seeds, and a larger mark for the models after the final exchange. For panels that are
    to be compared: `reach` of the y axis (None: that of the panel's own values), and the names of all panels, `among`
    which these are, so that each looks alike in all of them."""
    at = alt.X(f"{x}:Q", title=x_title, axis=alt.Axis(tickCount=6), scale=alt.Scale(nice=False))
    height = alt.Scale(zero=False) if reach is None else alt.Scale(domain=list(reach), nice=False)
    base = alt.Chart().encode(at, colour(names, among))
    curves = base.transform_filter("!datum.final")
    value = alt.Y("mean:Q", title=y, scale=height)
    tooltip = _tooltip("who", "round", "mean", "low", "high", "mb")
    band = curves.mark_area(opacity=_BAND).encode(alt.Y("low:Q", title=y, scale=height), alt.Y2("high"))
    line = curves.mark_line().encode(value)
    points = curves.mark_point(filled=True, size=26).encode(value, shape(names, among), tooltip=tooltip)
    last = base.transform_filter("datum.final").mark_point(filled=True, size=90, stroke="black", strokeWidth=0.6)
    return alt.layer(band, line, points, last.encode(value, shape(names, among), tooltip=tooltip))


def reach_of(rows: Rows) -> tuple[float, float]:
    """What a y axis must cover to show all the rows; anything where there are none."""
    if not rows:
        return 0.0, 1.0
    low, high = min(row["low"] for row in rows), max(row["high"] for row in rows)
    room = 0.04 * (high - low) or 1.0
    return low - room, high + room


def colour(names: Sequence[str], among: Sequence[str] = ()) -> alt.Color:
    """The colour of an experiment, the same everywhere; `among`: all that look alike in several panels."""
    given = theme.colours(among or names)
    scale = alt.Scale(domain=list(given), range=list(given.values()))
    return alt.Color("who:N", title=None, scale=scale, legend=_legend(names))


def shape(names: Sequence[str], among: Sequence[str] = ()) -> alt.Shape:
    """A mark per experiment, so that colour is not needed to tell them apart."""
    every = list(among or names)
    marks = [theme.SHAPES[i % len(theme.SHAPES)] for i in range(len(every))]
    return alt.Shape("who:N", title=None, scale=alt.Scale(domain=every, range=marks), legend=_legend(names))


def _legend(names: Sequence[str]) -> alt.Legend:
    return alt.Legend(columns=theme.legend_columns(names), values=list(names))


def _tooltip(*fields: str) -> list[alt.Tooltip]:
    words = {"who": "experiment", "mb": "MB per node", "low": "lowest", "high": "highest", "front": "on the front"}
    named = {"who", "cluster", "head", "front", "site"}
    return [alt.Tooltip(f"{f}:{'N' if f in named else 'Q'}", title=words.get(f, f)) for f in fields]


def fair_accuracy(comparison: Comparison, rows: Rows) -> Figure:
    """Fair accuracy over rounds, and that of the worst-served cluster."""
    names = [subject.label for subject in comparison.subjects]
    wanted = {"fair_accuracy": "Fair accuracy", "worst_cluster": "The worst-served cluster"}
    panels = [
        Panel(
            over_rounds(names, "fair accuracy, %" if what == "fair_accuracy" else comparison.measure.axis),
            drawn,
            title,
        )
        for what, title in wanted.items()
        if len(comparison.clusters) > 1 and (drawn := rows_of(rows, what))
    ]
    caption = "Fair accuracy rewards clusters that do well and alike: 2/3 of their mean accuracy + 1/3 of (1 - gap)."
    return Figure("fair", "Fair accuracy over rounds", caption, panels)


def odds(comparison: Comparison, rows: Rows) -> Figure:
    """Demographic parity and equalized odds over rounds."""
    names = [subject.label for subject in comparison.subjects]
    wanted = {"dp": "Demographic parity", "eo": "Equalized odds"}
    panels = [
        Panel(over_rounds(names, f"{title.lower()}, 0 is fair"), drawn, title)
        for what, title in wanted.items()
        if (drawn := rows_of(rows, what))
    ]
    return Figure("odds", "Are the clusters treated alike?", "Both are 0 where all clusters are treated alike.", panels)


def traffic(comparison: Comparison, rows: Rows) -> Figure:
    """Accuracy over the bytes a node had to hear for it."""
    names = [subject.label for subject in comparison.subjects]
    moving = [row for row in rows if row["mb"] > 0]
    measure = comparison.measure
    wanted = {"all": f"{_capital(measure.word)} over all nodes", "worst_cluster": "The worst-served cluster"}
    if comparison.of_sites:
        wanted = _of_sites(comparison)
    panels = [
        Panel(over_rounds(names, measure.axis, "mb", "MB heard per node"), drawn, title)
        for what, title in wanted.items()
        if (drawn := rows_of(moving, what))
    ]
    alone = facts.accuracy_alone(comparison)
    caption = f"What {measure.word} costs: payload that a node heard, without the final exchange."
    if measure.lower_is_better:
        caption += " Lower is better."
    if alone is not None:
        reached = f"{alone:.1f} %" if measure.percent else f"{alone:.3f}"
        who = "sites" if comparison.of_sites else "nodes"
        caption += f" Training alone hears nothing and reaches {reached} over all {who}."
    return Figure("traffic", f"{_capital(measure.word)} for bytes", caption, panels)


# Heads


def heads(comparison: Comparison) -> list[Figure]:
    """Of each experiment with heads, the first seed's choices: per node where they can be seen, and
    always per cluster."""
    figures = []
    for number, subject in enumerate(comparison.subjects):
        run = subject.runs[0]
        shares = facts.head_shares(comparison, run)
        if not shares:
            continue
        panels = [*_strips(comparison, run), *shares_panels(comparison.clusters, run, shares)]
        groups = "" if subject.sites is None else f" {groups_in_words(subject.sites)}"
        survey = "" if run.survey is None else f" {survey_in_words(run.survey)}"
        caption = f"Seed {run.seed}.{groups or f' {_settling(run)}'}{survey}"
        figures.append(Figure(f"heads-{number}", f"Who chose which head: {subject.label}", caption, panels))
    return figures


def _settling(run: History) -> str:
    from facade.analysis.statistics import settlement

    if run.clusters < 2:
        return "All nodes are of one cluster." if run.clusters else "The run does not know which nodes are of one kind."
    heads = settlement(run)
    if heads is None or heads.settling_round is None:
        return "It never settled: some cluster never had a head of its own until the end."
    return f"It settled: from round {heads.settling_round} on, every cluster had one head of its own."


def _strips(comparison: Comparison, run: History) -> list[Panel]:
    rows = facts.head_strips(comparison, run)
    if not rows:
        return []
    field, who = ("site", run.sites) if run.named else ("node", run.nodes.tolist())
    nodes, title = len(run.test_of), f"{field}, sorted by cluster" if run.clusters else field
    every = list(who) if run.cluster is None else [who[i] for i in np.argsort(run.cluster, kind="stable")]
    base = alt.Chart().mark_rect().encode(
        alt.X("from:Q", title="round", scale=alt.Scale(nice=False, zero=False, domain=[1, int(run.rounds[-1]) + 1])),
        alt.X2("to"),
        alt.Y(f"{field}:O", title=title, sort=every, axis=_node_axis(every, run.named)),
        _head_colour(run),
        tooltip=_tooltip(field, *(["cluster"] if run.clusters else []), "head", "from", "to"),
    )  # fmt: skip
    height = 14 * nodes if run.named else min(360, 11 * nodes)
    return [Panel(base, rows, f"Every {field}", height=max(60, height), wide=True)]


def _node_axis(nodes: Sequence[Any], named: bool) -> alt.Axis:
    """All names, or of numbers a few."""
    return alt.Axis(values=list(nodes)[:: 1 if named else max(1, len(nodes) // 8)], grid=False)


def _head_colour(run: History) -> alt.Color:
    names = [f"head {j}" for j in range(run.heads)]
    range_ = [theme.OKABE_ITO[j % len(theme.OKABE_ITO)] for j in range(run.heads)]
    return alt.Color("head:N", title=None, scale=alt.Scale(domain=names, range=range_))


def shares_panels(clusters: Sequence[str], run: History, shares: Rows) -> list[Panel]:
    """Per cluster, the share of its nodes that chose each head, over rounds."""
    panels = []
    for name in clusters:
        rows = [row for row in shares if row["cluster"] == name]
        chart = alt.Chart().mark_area().encode(
            alt.X("round:Q", scale=alt.Scale(nice=False, zero=False), axis=alt.Axis(tickCount=6)),
            alt.Y("share:Q", title="share of nodes", stack="normalize", axis=alt.Axis(format="%")),
            _head_colour(run),
            tooltip=_tooltip("round", "cluster", "head", "share"),
        )  # fmt: skip
        if rows:
            panels.append(Panel(chart, rows, f"Choices in {_with_article(name)}", height=140))
    return panels


# Nodes and prices


def node_gains(comparison: Comparison) -> Figure:
    """Who gains and who loses against training alone."""
    rows = facts.node_gains(comparison)
    many = len(comparison.runs[0].test_of) > facts.MOST_NODES
    names = list(dict.fromkeys(row["who"] for row in rows))
    given = theme.cluster_colours(comparison.clusters)
    gained = "percentage points" if comparison.measure.percent else comparison.measure.word
    encodings: list[Any] = [
        alt.X("gain:Q", title=f"{gained} gained over training alone"),
        alt.Y("who:N", title=None, sort=names),
        alt.YOffset("cluster:N", sort=comparison.clusters),
        alt.Color("cluster:N", title=None, scale=alt.Scale(domain=list(given), range=list(given.values()))),
    ]
    if many:
        shown = alt.Size("nodes:Q", title="nodes", scale=alt.Scale(range=[8, 260]), legend=alt.Legend(columns=5))
        marks = (
            alt.Chart()
            .mark_circle(opacity=0.8)
            .encode(*encodings, shown, tooltip=_tooltip("who", "cluster", "gain", "nodes"))
        )
    else:
        tick = alt.Chart().mark_tick(thickness=2, bandSize=12)
        whose = "site" if comparison.runs[0].named else "node"
        marks = tick.encode(*encodings, tooltip=_tooltip("who", whose, "cluster", "gain"))
    zero = alt.Chart().mark_rule(strokeDash=[4, 3]).encode(x=alt.datum(0))
    drawn = facts.binned(rows) if many else rows
    of = {name: [row["gain"] < 0 for row in rows if row["who"] == name] for name in names}
    lost = ", ".join(f"{name} {sum(worse)} of {len(worse)}" for name, worse in of.items())
    what = "Nodes counted in bins" if many else "One mark per node"
    caption = f"{what}, means over seeds; left of the line, a node would do better alone ({lost})."
    panels = [Panel(alt.layer(zero, marks), drawn, height=max(80, 44 * len(names)), wide=True)] if rows else []
    return Figure("gains", "Who gains, who loses against training alone", caption, panels, columns=1)


def pareto(comparison: Comparison) -> Figure:
    """Worst-cluster accuracy against bytes, marks as large as the time a run took."""
    rows, measure = facts.prices(comparison), comparison.measure
    unit, whose = "%" if measure.percent else measure.word, "site" if comparison.of_sites else "cluster"
    names = [row["who"] for row in rows]
    beaten = alt.condition("datum.front", alt.value(1), alt.value(0.35))
    edge = alt.condition("datum.front", alt.value(1.5), alt.value(0))
    marks = (
        alt.Chart()
        .mark_point(filled=True, stroke="#8C8C8C", size=120)
        .encode(
            alt.X("mb:Q", title="MB heard per node", axis=alt.Axis(tickCount=5), scale=alt.Scale(padding=14)),
            alt.Y("worst:Q", title=f"worst {whose}, {unit}", scale=alt.Scale(zero=False, padding=18)),
            colour(names),
            shape(names),
            opacity=beaten,
            strokeWidth=edge,
            tooltip=_tooltip("who", "worst", "mb", "seconds", "front"),
        )
    )
    if any(row["seconds"] is not None for row in rows):
        legend = alt.Legend(orient="top", columns=4, symbolType="circle", symbolFillColor="#8C8C8C", tickCount=3)
        marks = marks.encode(alt.Size("seconds:Q", title="seconds", scale=alt.Scale(range=[60, 600]), legend=legend))
    way = "Down" if measure.lower_is_better else "Up"
    caption = (
        f"{way} and left is better, small is fast. Faded: beaten by another in {measure.word}, bytes and time at once."
    )
    panels = [Panel(marks, rows, height=280, wide=True)] if len(rows) > 1 else []
    return Figure("pareto", f"What fairness costs: worst {whose}, bytes, time", caption, panels, columns=1)
