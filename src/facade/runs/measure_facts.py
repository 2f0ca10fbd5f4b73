"""What result.json says of every node and cluster, by every measure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from facade.analysis import measures
from facade.core.types import Row
from facade.data.federation import Federation


def measure_facts(finals: Sequence[Row], federation: Federation) -> Row:
    """The measures of the final models, from the rows of honest nodes: by names of sites, or numbers of nodes."""
    nodes = [row["node"] for row in finals]
    return measures.facts(
        np.array([row["confusion"] for row in finals], dtype=np.int64),
        measures.recorded(finals),
        site_names(nodes, federation.sites),
        federation.test_of[nodes],
        None if federation.cluster is None else federation.cluster[nodes],
    )


def site_names(nodes: Sequence[int], sites: Sequence[str] | None) -> list[str]:
    """What some nodes are called: by name where they have one, else by number."""
    return [str(node) if sites is None else sites[node] for node in nodes]
