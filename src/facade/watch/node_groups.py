"""Which nodes of a run are drawn together: those of a cluster where clusters are known, else every site, or all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from facade.core.types import Ids, Row
from facade.data.clusters import cluster_names, cluster_sizes
from facade.data.site_names import site_names
from facade.runs.honest_nodes import attackers, honest_nodes

MOST_LINES = 8
"""Beyond this many sites, they are drawn as one line, and the worst of them as another."""
ATTACKERS = "attackers"


@dataclass(frozen=True)
class NodeGroups:
    """Groups of the honest nodes of a run, by whom all numbers are; and the attackers."""

    names: list[str]
    """[n] of all nodes."""
    groups: list[str]
    members: list[list[int]]
    """The nodes of each group, ascending."""
    honest: Ids
    attackers: list[int] = field(default_factory=list)
    of_sites: bool = False
    """Whether nobody knows the clusters."""

    @classmethod
    def of(cls, experiment: Row, facts: Row) -> NodeGroups:
        """From a resolved experiment and what federation.json says."""
        n = len(facts["images"])
        honest, bad = honest_nodes(experiment, n), attackers(experiment)
        names = site_names(facts.get("sites"), range(n))
        if facts["cluster"] is not None:
            cluster = np.array(facts["cluster"])
            count = int(cluster.max()) + 1
            sizes = cluster_sizes(experiment["data"]["clusters"])
            members = [honest[cluster[honest] == c].tolist() for c in range(count)]
            return cls(names, cluster_names([sizes], count), members, honest, bad)
        if len(honest) <= MOST_LINES:
            each = honest.tolist()
            return cls(names, [names[node] for node in each], [[node] for node in each], honest, bad, True)
        return cls(names, ["mean of all sites"], [honest.tolist()], honest, bad, True)

    def group_of(self) -> list[int]:
        """[n] the group of every node; attackers are in the one behind the last."""
        of = np.full(len(self.names), len(self.groups))
        for group, members in enumerate(self.members):
            of[members] = group
        return [int(group) for group in of]

    def means(self, values: Sequence[float]) -> list[float]:
        """The mean over each group's nodes of [n] values, of those that are known; NaN where none is."""
        return [mean_of_known([values[node] for node in members]) for members in self.members]


def mean_of_known(values: Sequence[float]) -> float:
    """The mean of the values that are known; NaN where none is."""
    known = [value for value in values if value == value]
    return sum(known) / len(known) if known else math.nan
