"""What the nodes of a run come to by every measure: of the final models in result.json, and while it goes on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from facade.analysis import measures
from facade.analysis.measures import MEASURES, Measure
from facade.core.types import Row
from facade.data.federation import Federation
from facade.data.site_names import site_names


def measure_facts(
    finals: Sequence[Row], federation: Federation, wanted: Sequence[Measure] = tuple(MEASURES.values())
) -> Row:
    """Measures, from the rows of honest nodes in an evaluation: by the names of sites."""
    nodes = [row["node"] for row in finals]
    return measures.facts(
        np.array([row["confusion"] for row in finals], dtype=np.int64),
        measures.recorded(finals),
        site_names(federation.sites, nodes),
        federation.test_of[nodes],
        None if federation.cluster is None else federation.cluster[nodes],
        wanted,
    )


def measured(rows: Sequence[Row], federation: Federation, by: Measure) -> Row:
    """What an evaluation comes to by one measure."""
    return values_of(measure_facts(rows, federation, [by])[by.name])


def values_of(facts: Row) -> Row:
    """The values of a measure without what else is known of them: of `clusters` in their order or, where they are not
    known, of `sites` by name; None for what there is not."""
    if "clusters" in facts:
        return {"clusters": [fact["value"] for fact in facts["clusters"]]}
    return {"sites": {name: fact["value"] for name, fact in facts["sites"].items()}}


def few_values(measured: Row, by: Measure) -> list[float | None]:
    """What stands for all of these: the values of clusters, or the mean and the worst of sites."""
    if "clusters" in measured:
        return list(measured["clusters"])
    known = [value for value in measured["sites"].values() if value is not None]
    return [sum(known) / len(known), by.worst(known)] if known else [None, None]
