"""What a run does besides the algorithm itself: rounds, graphs, simulated trouble."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal

import torch

from facade.core.messages import EVERYONE, Edges, Everyone
from facade.core.network import Network
from facade.core.topology import Graph, Topology
from facade.core.turn import Shard, Turn, listed
from facade.data.federation import Federation

OTHER_PRIOR = {"flat": "own", "own": "flat"}


def deliver(network: Network, shard: Shard, round: int, wanted: Edges | Everyone) -> Edges | Everyone:
    """The wanted edges whose message arrives."""
    if network.loss == 0 and network.offline == 0:
        return wanted
    row, sender = (part.numpy() for part in listed(shard, wanted))
    kept = network.arrives(shard.seed, round, shard.nodes[row], sender)
    return Edges(torch.from_numpy(row[kept]), torch.from_numpy(sender[kept]))


@dataclass(frozen=True)
class Plan:
    """What a run does besides the algorithm itself."""

    n: int
    """Nodes of the whole network."""
    seed: int
    rounds: int
    every: int
    """Rounds between two evaluations."""
    topology: Topology
    fresh: bool
    """Whether every round has a graph of its own."""
    network: Network
    all_reduce: bool
    """Whether the run ends with one exchange in which everybody hears everybody."""
    head: Literal["chosen", "oracle"] = "chosen"
    """The head that nodes are tested with."""
    prior: Literal["auto", "flat", "own"] = "auto"
    """What is added to outputs before predictions that count, where label shares are out of the loss."""
    founding_n: int | None = None
    """Nodes that the run began with, where some have come or gone since; None: n."""

    def graph(self, round: int) -> Graph:
        """The round's graph; a fixed one is that of round 0."""
        return self.topology.draw(self.n, self.seed, round) if self.fresh else self._fixed_graph

    @functools.cached_property
    def _fixed_graph(self) -> Graph:
        return self.topology.draw(self.n, self.seed, 0)

    @functools.cached_property
    def spread(self) -> int:
        """Rounds in which what one node knows reaches everyone by gossip, in the network that the run began with: what
        is timed by it keeps its time when members come or go. Of a large fixed graph it takes a while to find out."""
        return self.topology.spread(self.founding_n or self.n, self.seed, self.fresh)

    def evaluates(self, done: int) -> bool:
        """Whether there is an evaluation after `done` rounds."""
        return done == self.rounds or done % self.every == 0

    def prior_for(self, federation: Federation) -> Literal["flat", "own"]:
        """What counts; "auto": own where nodes are tested on labels as they hold them."""
        if self.prior != "auto":
            return self.prior
        return "own" if federation.own_tests else "flat"

    def turn(self, shard: Shard, round: int) -> Turn:
        """A round as a shard sees it; the one after the last is the final exchange."""
        if round == self.rounds:
            return Turn(shard, round, EVERYONE, torch.full((shard.n,), shard.n - 1), self._find_spread)
        graph = self.graph(round)
        edges: Edges | Everyone = EVERYONE
        if not graph.everyone:
            row, sender = graph.into(shard.nodes)
            edges = Edges(torch.from_numpy(row), torch.from_numpy(sender))
        return Turn(shard, round, edges, torch.from_numpy(graph.degree), self._find_spread)

    def _find_spread(self) -> int:
        return self.spread
