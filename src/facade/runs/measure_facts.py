"""What result.json says of every node and cluster, by every measure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from facade.analysis import measures
from facade.core.types import Row
from facade.data.federation import Federation
from facade.data.site_names import site_names


def measure_facts(finals: Sequence[Row], federation: Federation) -> Row:
    """The measures of the final models, from the rows of honest nodes: by the names of sites."""
    nodes = [row["node"] for row in finals]
    return measures.facts(
        np.array([row["confusion"] for row in finals], dtype=np.int64),
        measures.recorded(finals),
        site_names(federation.sites, nodes),
        federation.test_of[nodes],
        None if federation.cluster is None else federation.cluster[nodes],
    )
