"""What runs come to site by site, where nobody knows which sites are alike."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Console

from facade.cli.wide_tables import TextColumn, print_wide

if TYPE_CHECKING:
    from facade.analysis.measures import Measure

MOST_SITES, WORST = 64, 16
"""Beyond this many sites, only so many of the worst served are listed."""


def print_each_site(
    console: Console, names: Sequence[str], values: Sequence[Mapping[str, float | None]], measure: Measure
) -> None:
    """One line per site, one column per algorithm: its name, and its values by the names of sites."""
    first = values[0]

    def served(site: str) -> float:
        value = first[site]
        return math.inf if value is None else measure.better * value

    shown, title = list(first), "site"
    if len(first) > MOST_SITES:
        shown, title = sorted(first, key=served)[:WORST], f"the {WORST} worst of {len(first)} sites"
    columns = [
        TextColumn(name, [as_shown(measure, own.get(site)) for site in shown])
        for name, own in zip(names, values, strict=True)
    ]
    print_wide(console, [TextColumn(title, shown)], columns, gap=1)


def as_shown(measure: Measure, value: float | None) -> str:
    """A value on the screen."""
    return "-" if value is None else f"{measure.scale * value:.{1 if measure.percent else 3}f}"
