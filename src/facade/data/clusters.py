"""How many nodes clusters have, and what they are called."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

UNKNOWN = "unknown"
"""What data.clusters says of a natural federation of which nobody knows which nodes are alike."""


def cluster_sizes(clusters: str) -> list[int]:
    """Nodes per cluster, of a text such as "30:2"; of "unknown", none."""
    return [] if clusters == UNKNOWN else [int(part) for part in clusters.split(":")]


def cluster_names(sizes: Iterable[Sequence[int]], clusters: int) -> list[str]:
    """Names of that many clusters, in experiments whose clusters have these numbers of nodes: majority and
    minority where all agree on which is which, else cluster 0, 1, ..."""
    pairs = list(sizes)
    if clusters == 2 and all(len(pair) == 2 for pair in pairs) and any(pair[0] != pair[1] for pair in pairs):
        if all(pair[0] >= pair[1] for pair in pairs):
            return ["majority", "minority"]
        if all(pair[0] <= pair[1] for pair in pairs):
            return ["minority", "majority"]
    return [f"cluster {c}" for c in range(clusters)]
