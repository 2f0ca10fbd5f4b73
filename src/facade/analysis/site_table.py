"""The sites of a table, one line each: accuracy in percent by every experiment, gains in points, and heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from facade.analysis.sites import groups_in_words
from facade.analysis.statistics import Estimate
from facade.analysis.table import Table, TableLine, short_keys

MOST_SITES = 64
"""Beyond this many sites, only the worst served are listed."""
WORST = 16
"""How many those are."""

Cell = tuple[str, str]
"""A number and, below it, its interval (empty if there is none)."""


class SiteColumn(NamedTuple):
    """What is said of every site."""

    heading: str
    cells: list[Cell]


class SiteTable(NamedTuple):
    """The sites of experiments on the same data with the same model."""

    names: list[str]
    columns: list[SiteColumn]
    notes: list[str]
    """Groups that heads found, and how many sites are not listed."""


def site_tables(table: Table) -> list[SiteTable]:
    """One table for each data set and model whose clusters are not known."""
    groups: dict[str, list[TableLine]] = {}
    for line in table.lines:
        if line.sites is not None:
            groups.setdefault(line.comparison, []).append(line)
    return [_site_table(lines) for lines in groups.values()]


def _site_table(lines: Sequence[TableLine]) -> SiteTable:
    ours = [line for line in lines if line.ours] or list(lines)
    first = ours[0].sites
    assert first is not None
    shown, few = list(range(len(first.names))), len(first.names) <= MOST_SITES
    if not few:
        shown = first.accuracy.means.argsort(kind="stable")[:WORST].tolist()
    columns = [
        SiteColumn("training samples", [(str(first.samples[i]), "") for i in shown]),
        SiteColumn("test samples", [(str(first.tested[i]), "") for i in shown]),
    ]
    names = dict(zip(map(id, lines), line_names(lines), strict=True))
    columns += [SiteColumn(names[id(line)], _accuracies(line, shown)) for line in lines]
    for line in ours:
        columns += _gains_and_head(line, names[id(line)], shown)
    notes = [] if few else [f"The {WORST} worst served of {len(first.names)} sites."]
    said = {names[id(line)]: groups_in_words(line.sites) for line in lines if line.sites is not None}
    return SiteTable(
        [first.names[i] for i in shown], columns, [*notes, *(f"{name}: {text}" for name, text in said.items() if text)]
    )


def _accuracies(line: TableLine, shown: Sequence[int]) -> list[Cell]:
    return [] if line.sites is None else [_cell(line.sites.accuracy.of(i), "") for i in shown]


def _gains_and_head(line: TableLine, name: str, shown: Sequence[int]) -> list[SiteColumn]:
    if line.sites is None:
        return []
    columns = [
        SiteColumn(f"{name} over {'EL' if reference == 'el' else reference}", [_cell(gains.of(i), "+") for i in shown])
        for reference, gains in line.sites.gains.items()
    ]
    if line.sites.groups:
        first = line.sites.groups[0]
        head = {site: str(j) for j, group in zip(first.heads, first.groups, strict=True) for site in group}
        columns.append(SiteColumn(f"{name}'s head", [(head[line.sites.names[i]], "") for i in shown]))
    return columns


def line_names(lines: Sequence[TableLine]) -> list[str]:
    """What the lines of a table are called in a heading: the algorithm, and what sets those with the same one apart."""
    keys = dict(zip(lines[0].label, short_keys(list(lines[0].label)), strict=True))
    names = []
    for line in lines:
        alike = [other.label for other in lines if other.label["algorithm"] == line.label["algorithm"]]
        telling = [key for key, value in line.label.items() if any(other[key] != value for other in alike)]
        names.append(" ".join([line.label["algorithm"], *(f"{keys[key]}={line.label[key]}" for key in telling)]))
    return names


def _cell(estimate: Estimate, sign: str) -> Cell:
    """Percent, or with sign "+" points that were gained or lost."""
    number = f"{100 * (estimate.mean or 0.0):{sign}.1f}"
    interval = estimate.interval
    return number, "" if interval is None else f"[{100 * interval.low:.1f}, {100 * interval.high:.1f}]"


def sites_to_markdown(table: SiteTable) -> str:
    """One table for a README."""
    headings = ["site", *(column.heading for column in table.columns)]
    body = [
        [name, *(" ".join(column.cells[i]).strip() for column in table.columns)] for i, name in enumerate(table.names)
    ]
    lines = (headings, ["---", *["--:"] * len(table.columns)], *body)
    return "\n".join([*(f"| {' | '.join(cells)} |" for cells in lines), "", *table.notes]) + "\n"
