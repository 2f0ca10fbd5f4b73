"""The sites of a table, one line each: what counts by every experiment, gains, and heads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from facade.analysis.experiment_names import experiment_names
from facade.analysis.measures import Measure
from facade.analysis.sites import Sites, SiteValues, groups_in_words
from facade.analysis.statistics import Estimate
from facade.analysis.table import Table, TableLine

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

    title: str
    """What the numbers are."""
    names: list[str]
    columns: list[SiteColumn]
    notes: list[str]
    """Groups that heads found, and how many sites are not listed."""


def site_tables(table: Table) -> list[SiteTable]:
    """One table for each data set and model whose clusters are not known."""
    groups: dict[str, list[TableLine]] = {}
    for line in table.lines:
        groups.setdefault(line.comparison, []).append(line)
    return [_site_table(lines) for lines in groups.values() if lines[0].sites is not None]


def _site_table(lines: Sequence[TableLine]) -> SiteTable:
    names = experiment_names([line.label for line in lines])
    every = [(name, line.sites) for name, line in zip(names, lines, strict=True) if line.sites is not None]
    ours = [own for own, line in zip(every, lines, strict=True) if line.ours] or every
    first = ours[0][1]
    shown, few = first.names, len(first.names) <= MOST_SITES
    if not few:
        served = first.measure.better * first.values.means
        shown = [first.names[i] for i in served.argsort(kind="stable")[:WORST]]
    columns = [
        SiteColumn("training samples", _cells(first, shown, lambda i: (str(first.samples[i]), ""))),
        SiteColumn("test samples", _cells(first, shown, lambda i: (str(first.tested[i]), ""))),
        *(SiteColumn(name, _estimates(sites, sites.values, shown, "")) for name, sites in every),
        *(column for name, sites in ours for column in _gains_and_head(name, sites, shown)),
    ]
    notes = [] if few else [f"The {WORST} worst served of {len(first.names)} sites."]
    notes += [f"{name}: {groups}" for name, sites in every if (groups := groups_in_words(sites))]
    return SiteTable(_title(first.measure), shown, columns, notes)


def _title(measure: Measure) -> str:
    if measure.percent:
        return f"{measure.word} in percent, gains in points"
    return f"{measure.word}, and gains" + (", which are positive where it is lower" if measure.lower_is_better else "")


def _cells(sites: Sites, shown: Sequence[str], cell: Callable[[int], Cell]) -> list[Cell]:
    """The cells of these sites, by their places; of one that attacked in this experiment, none."""
    places = {name: i for i, name in enumerate(sites.names)}
    return [cell(places[name]) if name in places else ("-", "") for name in shown]


def _estimates(sites: Sites, values: SiteValues, shown: Sequence[str], sign: str) -> list[Cell]:
    return _cells(sites, shown, lambda i: _cell(values.of(i), sites.measure, sign))


def _gains_and_head(name: str, sites: Sites, shown: Sequence[str]) -> list[SiteColumn]:
    columns = [
        SiteColumn(f"{name} over {'EL' if reference == 'el' else reference}", _estimates(sites, gains, shown, "+"))
        for reference, gains in sites.gains.items()
    ]
    if sites.groups:
        first = sites.groups[0]
        head = {site: str(j) for j, group in zip(first.heads, first.groups, strict=True) for site in group}
        columns.append(SiteColumn(f"{name}'s head", [(head.get(site, "-"), "") for site in shown]))
    return columns


def _cell(estimate: Estimate, measure: Measure, sign: str) -> Cell:
    """A number, or with sign "+" what was gained or lost; a dash where not every seed has it."""
    if estimate.mean is None:
        return "-", ""
    scale, digits, interval = measure.scale, 1 if measure.percent else 3, estimate.interval
    number = f"{scale * estimate.mean:{sign}.{digits}f}"
    if interval is None:
        return number, ""
    return number, f"[{scale * interval.low:.{digits}f}, {scale * interval.high:.{digits}f}]"


def sites_to_markdown(table: SiteTable) -> str:
    """One table for a README."""
    headings = ["site", *(column.heading for column in table.columns)]
    body = [
        [name, *(" ".join(column.cells[i]).strip() for column in table.columns)] for i, name in enumerate(table.names)
    ]
    lines = (headings, ["---", *["--:"] * len(table.columns)], *body)
    return "\n".join([*(f"| {' | '.join(cells)} |" for cells in lines), "", *table.notes]) + "\n"
