"""Charts of sites one by one, for federations in which nobody knows who is alike."""

from __future__ import annotations

import altair as alt
import numpy as np

from facade.analysis.measures import Measure
from facade.analysis.node_values import node_values
from facade.analysis.sites import REFERENCES
from facade.report import theme
from facade.report.facts import MOST_NODES, Comparison, Rows, Subject, tidy
from facade.report.panels import Figure, Panel
from facade.runs.history import Evaluation, History

_MOST_COLOURS = len(theme.OKABE_ITO)
"""Beyond this many sites, only the best and the worst have a colour."""
_FEW_SITES = 12
"""Beyond this many, gains are drawn of FACADE alone where it takes part."""
_QUANTILES = {"highest": 1.0, "9 of 10 sites are below": 0.9, "median": 0.5, "1 of 10 is below": 0.1, "lowest": 0.0}


# Over rounds


def over_rounds(comparison: Comparison) -> Figure:
    """One panel per experiment, one line per site."""
    measure = comparison.measure
    drawn = [(subject.label, rows) for subject in comparison.subjects if (rows := _lines(subject))]
    values = [row["value"] for _, rows in drawn for row in rows] or [0.0]
    room = 0.04 * (max(values) - min(values)) or 0.01 * measure.scale
    reach = [min(values) - room, max(values) + room]
    panels = [Panel(_lines_chart(rows, reach, measure), rows, label) for label, rows in drawn]
    caption = "Means over seeds; the large mark at the end is the model after the final exchange."
    if len(comparison.runs[0].nodes) > MOST_NODES:
        caption += f" Of {len(comparison.runs[0].nodes):,} sites, how they are spread."
    return Figure("sites", f"{measure.word[:1].upper()}{measure.word[1:]} of every site over rounds", caption, panels)


def _lines(subject: Subject) -> Rows:
    """Per evaluation and site that has it, accuracy in percent or what else counts, the mean over seeds; of very many
    sites, quantiles."""
    names, measure = subject.runs[0].sites, subject.runs[0].measure
    each = [_moments(run) for run in subject.runs]
    rows: Rows = []
    last: dict[str, float] = {}
    for at in [at for at in each[0] if all(at in other for other in each)]:
        values = measure.scale * np.mean([node_values(moments[at], measure) for moments in each], 0)
        shown = {name: value for name, value in zip(names, values, strict=True) if not np.isnan(value)}
        if len(shown) > MOST_NODES:
            known = list(shown.values())
            shown = {name: np.quantile(known, q) for name, q in _QUANTILES.items()}
        round, final = at
        last = {name: tidy(value) for name, value in shown.items()}
        rows += [{"site": name, "round": round, "final": final, "value": value} for name, value in last.items()]
    if len(last) > _MOST_COLOURS:
        ends = {min(last, key=last.__getitem__): "lowest", max(last, key=last.__getitem__): "highest"}
        for row in rows:
            end = ends.get(row["site"])
            row["shown"] = "other sites" if end is None else f"{end} in the end: {row['site']}"
        rows.sort(key=lambda row: row["site"] in ends)  # what comes last is drawn on top
    return rows


def _moments(run: History) -> dict[tuple[int, bool], Evaluation]:
    """Evaluations by their rounds, and whether they are final."""
    return {(e.round, False): e for e in run.evaluations} | {(run.final.round, True): run.final}


def _lines_chart(rows: Rows, reach: list[float], measure: Measure) -> alt.LayerChart | alt.FacetChart:
    names = list(dict.fromkeys(row["site"] for row in rows))
    if "shown" in rows[0]:
        kinds = sorted({row["shown"] for row in rows}, key=lambda kind: (kind != "other sites", kind))
        given = dict(zip(kinds, ["#B8BEC5", "#0072B2", "#D55E00"], strict=False))
        legend = alt.Legend(columns=1)
    else:
        kinds, given = names, dict(zip(names, theme.OKABE_ITO, strict=False))
        legend = alt.Legend(columns=theme.legend_columns(names))
    field = "shown" if "shown" in rows[0] else "site"
    scale = alt.Scale(domain=kinds, range=list(given.values()))
    base = alt.Chart().encode(
        alt.X("round:Q", axis=alt.Axis(tickCount=6), scale=alt.Scale(nice=False)),
        alt.Y("value:Q", title=measure.axis, scale=alt.Scale(domain=reach, nice=False)),
        alt.Color(f"{field}:N", title=None, scale=scale, legend=legend),
        alt.Detail("site:N"),
    )
    tooltip = [alt.Tooltip("site:N"), alt.Tooltip("round:Q"), alt.Tooltip("value:Q", title=measure.word)]
    line = base.transform_filter("!datum.final").mark_line(point=alt.OverlayMarkDef(size=22)).encode(tooltip=tooltip)
    last = base.transform_filter("datum.final").mark_point(filled=True, size=70, stroke="black", strokeWidth=0.6)
    return alt.layer(line, last.encode(tooltip=tooltip))


# Gains


def gains(comparison: Comparison) -> Figure:
    """What every site gains, with intervals: one panel per algorithm over which it is measured."""
    ours = [subject for subject in comparison.subjects if subject.algorithm == "facade"]
    many = len(comparison.runs[0].nodes) > _FEW_SITES
    subjects = ours if many and ours else comparison.subjects
    panels = []
    for reference, words in REFERENCES.items():
        rows = [row for subject in subjects for row in _gain_rows(subject, reference)]
        if rows:
            panels.append(_gain_panel(rows, f"Over {words}", comparison))
    unit = _unit(comparison.measure)
    caption = f"{unit[:1].upper()}{unit[1:]}, with 95 % intervals: right of the line, a site is better off."
    return Figure("gains", "What every site gains", caption, panels)


def _unit(measure: Measure) -> str:
    return "percentage points" if measure.percent else measure.word


def _gain_rows(subject: Subject, reference: str) -> Rows:
    if subject.sites is None or reference not in subject.sites.gains:
        return []
    rows = []
    for i, name in enumerate(subject.sites.names):
        estimate = subject.sites.gains[reference].of(i)
        if estimate.mean is None:
            continue
        low, high = (estimate.interval.low, estimate.interval.high) if estimate.interval else (estimate.mean,) * 2
        numbers, scale = {"gain": estimate.mean, "low": low, "high": high}, subject.sites.measure.scale
        rows.append({"who": subject.label, "site": name} | {key: tidy(scale * v) for key, v in numbers.items()})
    return rows


def _gain_panel(rows: Rows, title: str, comparison: Comparison) -> Panel:
    every = [subject.label for subject in comparison.subjects]
    names, labels = list(dict.fromkeys(row["site"] for row in rows)), list(dict.fromkeys(row["who"] for row in rows))
    given = {name: colour for name, colour in theme.colours(every).items() if name in labels}
    base = alt.Chart().encode(
        alt.Y("site:N", title=None, sort=names),
        alt.YOffset("who:N", sort=labels),
        alt.Color(
            "who:N",
            title=None,
            scale=alt.Scale(domain=list(given), range=list(given.values())),
            legend=alt.Legend(columns=theme.legend_columns(labels)),
        ),
    )
    tooltip = [alt.Tooltip(f"{name}:{'N' if name in ('who', 'site') else 'Q'}") for name in rows[0]]
    points = f"{_unit(comparison.measure)} gained"
    bars = base.mark_rule(strokeWidth=2).encode(alt.X("low:Q", title=points), alt.X2("high"), tooltip=tooltip)
    marks = base.mark_point(filled=True, size=46, opacity=1).encode(alt.X("gain:Q", title=points), tooltip=tooltip)
    zero = alt.Chart().mark_rule(strokeDash=[4, 3]).encode(x=alt.datum(0))
    height = max(100, len(names) * max(18, 11 * len(labels)))
    return Panel(alt.layer(zero, bars, marks), rows, title, height=height)
