"""`facade show`: one table over many runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from facade.cli.console import out, write
from facade.cli.display import OURS
from facade.cli.options import MeasureName, Runs
from facade.cli.wide_tables import TextColumn, print_wide

if TYPE_CHECKING:
    from facade.analysis.table import Table
    from facade.runs.history import History


def show(
    runs: Runs,
    csv: Annotated[bool, typer.Option("--csv", help="Comma-separated, one line per number.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="A Markdown table.")] = False,
    latex: Annotated[bool, typer.Option("--latex", help="A LaTeX tabular.")] = False,
    json: Annotated[bool, typer.Option("--json", help="All numbers, every seed's values.")] = False,
    target: Annotated[
        float | None,
        typer.Option(help="An accuracy, such as 0.63, or a value of what else counts: what did it take to reach it?"),
    ] = None,
    measure: MeasureName = None,
    columns: Annotated[
        str | None, typer.Option(help="Numbers to show, such as worst_site,all,eo; any that --json has.")
    ] = None,
    heads: Annotated[bool, typer.Option("--heads", help="Also show who chose which head, and when.")] = False,
) -> None:
    """Compare runs: runs that differ only in their seed make one line, with intervals."""
    from facade.analysis import table
    from facade.errors import ExperimentError
    from facade.runs.history import judged_by, load_all, unsealed

    formats = {table.to_csv: csv, table.to_markdown: markdown, table.to_latex: latex, table.to_json: json}
    chosen = [write for write, wanted in formats.items() if wanted]
    if len(chosen) > 1:
        raise ExperimentError("--csv, --markdown, --latex and --json exclude each other; give one of them")
    if chosen and heads:
        raise ExperimentError("--heads is for the screen; --json has the choice of heads in any case")
    histories = judged_by(load_all(runs), measure)
    comparison = table.tabulate(histories, target)
    if columns is not None:
        comparison = comparison.only([name.strip() for name in columns.split(",") if name.strip()])
    if chosen:
        write(chosen[0](comparison) + (site_lists(comparison) if markdown else ""))
    else:
        print_table(comparison)
        if word := unsealed(histories):
            out.print(word, style="dim", soft_wrap=True)
    if heads:
        for run in histories:
            _print_heads(run)


def print_table(table: Table) -> None:
    """The table on the screen."""
    from facade.analysis.experiment_names import short_keys
    from facade.analysis.table import pairs

    cells = [pairs(table, line) for line in table.lines]
    ours = [OURS if line.ours else None for line in table.lines]
    labels = [[*line.label.values(), str(len(line.seeds))] for line in table.lines]
    names = [*short_keys(list(table.lines[0].label)), "seeds"]
    print_wide(
        out,
        [TextColumn(name, list(label)) for name, label in zip(names, zip(*labels, strict=True), strict=True)],
        [
            TextColumn(
                _folded(column.heading),
                ["\n".join(row[i]).rstrip() for row in cells],
                frozenset(table.leading.get(column.name, ())),
            )
            for i, column in enumerate(table.columns)
        ],
        gap=2,
        styles=ours,
    )
    out.print(table.note, style="dim")
    if not table.numbers:
        _print_sites(table)


def _print_sites(table: Table) -> None:
    """Every site, where clusters are not known."""
    from facade.analysis.site_table import site_tables

    for sites in site_tables(table):
        out.print(f"\nSites: {sites.title}", style="bold")
        columns = [
            TextColumn(_folded(column.heading), ["\n".join(cell).rstrip() for cell in column.cells])
            for column in sites.columns
        ]
        print_wide(out, [TextColumn("\nsite", sites.names)], columns, gap=2)
        for note in sites.notes:
            out.print(note)


def site_lists(table: Table) -> str:
    """The sites of a table as Markdown; empty where clusters are known, or other numbers were asked for."""
    from facade.analysis.site_table import site_tables, sites_to_markdown

    return "" if table.numbers else "".join(f"\n{sites_to_markdown(sites)}" for sites in site_tables(table))


def _folded(heading: str) -> str:
    """A heading in two lines, the first of which may be empty."""
    first, _, last = heading.rpartition(" ")
    return f"{first}\n{last}"


def _print_heads(run: History) -> None:
    from facade.analysis.statistics import settlement
    from facade.cli.display import few_rounds
    from facade.data.clusters import cluster_names

    heads = settlement(run)
    if heads is None or run.choice is None:
        return
    rest = "never settled" if heads.settling_round is None else f"settled from round {heads.settling_round} on"
    kinds = {"unused": heads.unused, "shared": heads.shared}
    which = [f"{kind} heads: {', '.join(map(str, these))}" for kind, these in kinds.items() if these]
    facts = "; ".join([*([rest] if run.clusters > 1 else []), *which])
    out.print(f"\n{run.path}: {facts}{'. ' if facts else ''}Percent of nodes at every head:", soft_wrap=True)
    _, clusters, k = heads.shares.shape
    names = cluster_names([run.sizes], clusters) if run.clusters else ["all sites"]
    width = max(len(_side_by_side(range(k))), *map(len, names))
    for first, cells in (("", names), ("round", [_side_by_side(range(k))] * clusters)):
        out.print(f"{first:>7}{''.join(f'   {cell:>{width}}' for cell in cells)}", style="bold", soft_wrap=True)
    places = {int(round): place for place, round in enumerate(run.rounds)}  # a real peer may have left rounds out
    for round in few_rounds(dict(zip(places, run.choice.tolist(), strict=True))):
        cells = [_side_by_side(100 * row) for row in heads.shares[places[round]]]
        out.print(f"{round:>7}{''.join(f'   {cell:>{width}}' for cell in cells)}", soft_wrap=True)


def _side_by_side(numbers: Iterable[float]) -> str:
    """Whole numbers, one below the other when several such lines are."""
    return " ".join(f"{number:3.0f}" for number in numbers)
