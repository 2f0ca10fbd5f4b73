"""Who hears whom in a round: from the experiment alone, as every node computes it."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from facade.core.names import is_foreign
from facade.core.network import Network
from facade.core.topology import TOPOLOGIES, Graph, Topology
from facade.core.types import Ids, Row
from facade.errors import FacadeError

HEAR_OTHERS = {
    "dac": "DAC's nodes choose whom they hear by how alike they are; their rows do not say whom.",
    "local": "Nodes train alone: nobody hears anybody.",
}
"""Algorithms that do not hear whom the round's graph says, and why nothing is drawn."""
KEEP_THEIR_GRAPH = frozenset({"dpsgd", "deprl", "local"})
"""Algorithms that keep one graph where the experiment leaves that to them."""
"""Algorithms that hear others than the round's graph says, and why nothing is drawn."""
HEAR_NOBODY = {"local": "Nodes train alone: nobody hears anybody."}


class RoundGraph:
    """The graphs of an experiment, as resolved, for n nodes."""

    def __init__(self, experiment: Row, n: int) -> None:
        algorithm, section = str(experiment["algorithm"]["name"]), experiment["topology"]
        self.n = n
        self._seed = int(experiment["seed"])
        trouble = experiment.get("network", {})
        self._network = Network(trouble.get("loss", 0.0), trouble.get("offline", 0.0))
        self._topology = _topology(section)
        self.why_not = HEAR_OTHERS.get(algorithm, "")
        """Why there is nothing to draw; empty where there is."""
        for name in (algorithm, str(section["name"])):
            if is_foreign(name):
                self.why_not = f"{name} is code of somebody's own, which is not run for a picture."
        if not self.why_not and self._topology is None:
            self.why_not = f"Nothing here knows the topology {section['name']}."
        given = section.get("fresh", "auto")
        fresh = algorithm not in KEEP_THEIR_GRAPH if given == "auto" else bool(given)
        self._fresh = fresh and not (self._topology is not None and self._topology.fixed)

    def edges(self, round: int) -> tuple[Ids, Ids]:
        """(receivers, senders) of the messages that arrive in a round, counted from 0, ascending by receiver."""
        receiver, sender = self._graph_edges(round if self._fresh else 0)
        if self._network.loss or self._network.offline:
            kept = self._network.arrives(self._seed, round, receiver, sender)
            return receiver[kept], sender[kept]
        return receiver, sender

    @functools.lru_cache(maxsize=4)  # noqa: B019 - there are few of them, and they live as long as the page
    def _graph_edges(self, round: int) -> tuple[Ids, Ids]:
        assert self._topology is not None, "nobody asks for what cannot be drawn"
        graph: Graph = self._topology.draw(self.n, self._seed, round)
        if graph.everyone:
            receiver, sender = np.nonzero(~np.eye(self.n, dtype=bool))
            return receiver, sender
        return graph.receiver, graph.sender

    def into(self, node: int, round: int) -> list[int]:
        """Whom a node hears in a round."""
        receiver, sender = self.edges(round)
        return [int(other) for other in sender[receiver == node]]


def _topology(section: Row) -> Topology | None:
    """The topology that an experiment names; None if it is not one of ours."""
    kind = TOPOLOGIES.get(section["name"])
    if kind is None:
        return None
    given: dict[str, Any] = {"degree": section.get("degree"), "edges": section.get("edges")}
    try:
        return kind(**{key: value for key, value in given.items() if key in kind.__dataclass_fields__})
    except (FacadeError, TypeError, ValueError):
        return None
