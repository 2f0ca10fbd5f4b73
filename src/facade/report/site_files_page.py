"""The page of the site.json files of real peers: what `facade network report` says, with charts."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import altair as alt

from facade.analysis import site_comparison
from facade.files import store
from facade.report import theme
from facade.report.facts import Rows, tidy
from facade.report.page_parts import fitting, letters
from facade.report.panels import Figure, Panel
from facade.report.template import figure_facts, render


def report(comparison: dict[str, Any], vouched: bool) -> str:
    """The page of a comparison of sites; `vouched`: their files were checked by a list."""
    lines = site_comparison.lines(comparison)
    headings = [*site_comparison.NUMBERS, *site_comparison.WORDS]
    cells = [[*line.numbers, *line.words] for line in lines]
    columns = [[(heading, ""), *((row[j], "") for row in cells)] for j, heading in enumerate(headings)]
    names, drawn, numbers = ["site", *(line.site for line in lines)], _figures(comparison), itertools.count()
    facts = {
        "title": site_comparison.title(comparison),
        "vouched": vouched,
        "sentences": site_comparison.sentences(comparison),
        "headings": headings,
        "lines": [[line.site, *row] for line, row in zip(lines, cells, strict=True)],
        "letters": letters(names),
        "parts": fitting([names], columns),
        "figures": [figure_facts(figure, "sites", numbers) for figure in drawn],
    }
    return render("sites.html", drawn, facts)


def write(comparison: dict[str, Any], vouched: bool, path: Path) -> Path:
    """Write the page of a comparison of sites."""
    store.replace(path, report(comparison, vouched).encode())
    return path


def _figures(comparison: dict[str, Any]) -> list[Figure]:
    sites = comparison["sites"]
    rows: Rows = [
        {"site": site["id"], "accuracy": tidy(100 * site["accuracy"]), "head": _head(site["choice"])}
        | ({} if site["gain"] is None else {"gain": tidy(100 * site["gain"])})
        for site in sites
    ]
    panels = [_bars(rows, "accuracy", "accuracy in %")]
    caption = "On every site's own test data, with the model after the final exchange."
    if gaining := [row for row in rows if "gain" in row]:
        panels.append(_bars(gaining, "gain", "points gained over training alone"))
        caption += " Right of the line, a site is better off than alone."
    if any(site["choice"] is not None for site in sites):
        caption += " Sites of one colour chose the same head."
    return [Figure("accuracy", "How well sites are served", caption, panels)]


def _head(choice: int | None) -> str:
    return "all sites" if choice is None else f"head {choice}"


def _bars(rows: Rows, field: str, title: str) -> Panel:
    """A bar for every site, coloured by its head."""
    heads = sorted({str(row["head"]) for row in rows})
    colours = theme.cluster_colours(heads)
    chart = (
        alt.Chart()
        .mark_bar()
        .encode(
            alt.X(f"{field}:Q", title=title, axis=alt.Axis(tickCount=6)),
            alt.Y("site:N", title=None),
            alt.Color("head:N", title=None, scale=alt.Scale(domain=list(colours), range=list(colours.values()))),
            tooltip=[alt.Tooltip("site:N"), alt.Tooltip(f"{field}:Q", title=title), alt.Tooltip("head:N")],
        )
    )
    return Panel(chart, rows, height=max(100, 18 * len(rows)))
