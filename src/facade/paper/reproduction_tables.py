"""What the sections of the reproduction's page are made of: runs by question, cells, tables, pictures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from facade.analysis.statistics import Numbers, settlement
from facade.data.clusters import cluster_names, cluster_sizes
from facade.paper.published import Printed
from facade.paper.reproduction import Run
from facade.paper.settings import Part
from facade.paper.tables import COLUMNS
from facade.runs.history import History

_COLUMNS = {("fair_accuracy" if name.startswith("fair") else name): how for name, how in COLUMNS.items()}
"""Those of the paper's tables; one seed is its own mean."""


def parts(runs: Sequence[Run], stage: str) -> list[Part]:
    """The divisions into clusters that a question is asked of."""
    return list(dict.fromkeys(run.part for run in runs if run.stage == stage))


def runs_of(runs: Sequence[Run], stage: str, part: Part) -> list[Run]:
    """The runs of one question and division."""
    return [run for run in runs if run.stage == stage and run.part == part]


def number(value: float | None, scale: float, digits: int) -> str:
    """A number as it is printed; empty if there is none."""
    return "" if value is None else f"{round(scale * value, digits) + 0.0:.{digits}f}"  # no minus zero


def headings(part: Part) -> list[str]:
    """What the columns of a table of runs are called; a cluster is a minority only where it is smaller."""
    names = cluster_names([cluster_sizes(part.clusters)], 2)
    return [*names, *(heading for _, heading, _, _ in list(_COLUMNS.values())[2:])]


def cells(numbers: Numbers) -> list[str]:
    """The numbers below such headings."""
    return [number(numbers.get(name), scale, digits) for name, (_, _, scale, digits) in _COLUMNS.items()]


def with_published(ours: Numbers, printed: Printed | None) -> list[str]:
    """The same with the published ones in brackets."""
    if printed is None:
        return cells(ours)
    theirs = [f" ({getattr(printed, name):.{digits}f})" for name, _, _, digits in _COLUMNS.values()]
    return [one + other for one, other in zip(cells(ours), theirs, strict=True)]


def settled(run: History) -> str:
    """The round from which on every cluster had a head of its own; empty for algorithms without heads."""
    heads = settlement(run)
    if heads is None:
        return ""
    return "**never**" if heads.settling_round is None else str(heads.settling_round)


def table(above: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    rules = ["---"] * len(above)
    return "\n".join(f"| {' | '.join(line)} |" for line in (above, rules, *lines))


def image(words: str, picture: Path, page: Path) -> str:
    """A picture in Markdown, as the page sees it."""
    return f"![{words}]({picture.relative_to(page.parent).as_posix()})"
