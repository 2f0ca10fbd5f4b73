"""What runs come to by the measure that they are judged by, where it is not accuracy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Console

from facade.cli.display_each_site import as_shown, print_each_site
from facade.cli.wide_tables import TextColumn, print_wide
from facade.core.names import short_ones
from facade.core.types import Row
from facade.data.clusters import cluster_names

if TYPE_CHECKING:
    from facade.analysis.measures import Measure
    from facade.runs.result import Result


def print_measured(console: Console, results: Mapping[str, Result], sizes: Sequence[int]) -> None:
    """One line per algorithm; the one that serves the worst cluster best stands out. Where clusters are not known, the
    one that serves the worst site best, and then every site. Nothing where accuracy counts, or where an older version
    computed a run."""
    from facade.analysis.measures import ACCURACY, MEASURES

    measure = MEASURES[next(iter(results.values())).experiment.evaluation.measure]
    if measure == ACCURACY or any("measures" not in result.summary for result in results.values()):
        return
    told = [result.summary["measures"][measure.name] for result in results.values()]
    clusters = [[fact["value"] for fact in one.get("clusters", [])] for one in told]
    nodes = [_known(one["sites"].values()) for one in told]
    columns = [
        TextColumn(f"\n{name}", [as_shown(measure, values[c]) for values in clusters])
        for c, name in enumerate(cluster_names([sizes], len(clusters[0])))
    ]
    means = [sum(values) / len(values) if values else None for values in nodes]
    worst = [_worst(measure, values) for values in nodes]
    all_of, whose = ("\nall", "node") if clusters[0] else ("mean of\nsites", "site")
    columns.append(TextColumn(all_of, [as_shown(measure, value) for value in means]))
    columns.append(TextColumn(f"worst\n{whose}", [as_shown(measure, value) for value in worst]))
    unit = ", in percent" if measure.percent else ", lower is better" if measure.lower_is_better else ""
    console.print(f"\n{measure.word[0].upper()}{measure.word[1:]} of the final models{unit}", style="bold")
    names = list(short_ones(results).values())
    styles = ["bold" if lead else None for lead in leading(measure, clusters if clusters[0] else nodes)]
    print_wide(console, [TextColumn("algorithm", names)], columns, gap=1, styles=styles)
    if not clusters[0]:
        values = [{site: fact["value"] for site, fact in one["sites"].items()} for one in told]
        print_each_site(console, names, values, measure)


def leading(measure: Measure, served: Sequence[Sequence[float | None]]) -> list[bool]:
    """Of several algorithms, by what each gives every cluster: which of them serves the worst one best."""
    worst = [_worst(measure, values) for values in served]
    known = [value for value in worst if value is not None]
    best = measure.best(known) if len(known) > 1 else None
    return [best is not None and value == best for value in worst]


def _worst(measure: Measure, values: Sequence[float | None]) -> float | None:
    """None where not all are known."""
    known = [value for value in values if value is not None]
    return measure.worst(known) if known and len(known) == len(values) else None


def _known(facts: Iterable[Row]) -> list[float]:
    return [fact["value"] for fact in facts if fact["value"] is not None]
