"""The nodes that one process hosts, and one round as they see it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from facade.core import tree
from facade.core.messages import Edges, Everyone
from facade.core.tree import Params
from facade.core.types import Ids
from facade.data.samples import Holdings, Samples
from facade.learning.learner import Learner

FEW = 8
"""Samples by which a node judges what it heard."""


@dataclass(frozen=True)
class Shard:
    """The nodes one process hosts. It knows no clusters and no test data: an algorithm cannot cheat."""

    nodes: Ids
    """[S] global ids, ascending."""
    n: int
    seed: int
    learner: Learner
    data: Holdings

    def zeros(self) -> Tensor:
        """[S] zeros in the run's dtype."""
        return torch.zeros(len(self.nodes), dtype=self.learner.dtype)


@dataclass(frozen=True)
class Turn:
    """One round as a shard sees it."""

    shard: Shard
    round: int
    edges: Edges | Everyone
    """The round's edges into this shard."""
    degree: Tensor
    """[n] number of peers each node of the network hears in the graph."""
    find_spread: Callable[[], int]
    local_parts: Params = field(default_factory=dict)
    """[S, ...] what the nodes' own models have and, while they mix, neither states nor messages."""

    @property
    def learner(self) -> Learner:
        """The shard's learner."""
        return self.shard.learner.with_local(self.local_parts) if self.local_parts else self.shard.learner

    @property
    def spread(self) -> int:
        """Rounds in which what one node knows reaches everyone by gossip."""
        return self.find_spread()

    def samples(self, purpose: str, steps: int | None = None) -> Samples:
        """Each hosted node's samples for a purpose: `steps` batches (default: training.steps)."""
        training = self.learner.training
        count = training.samples if steps is None else steps * training.batch
        return Samples(self.shard.data, self.shard.seed, purpose, self.round, count)

    def losses(self, models: Params) -> Tensor:
        """[S, m] mean loss of each of m models [S, m, ...] on a few of the node's own samples."""
        nodes, count = next(iter(models.values())).shape[:2]
        flat = tree.map(lambda leaf: leaf.flatten(0, 1), models)
        receiver = torch.arange(nodes).repeat_interleave(count)
        losses = self.learner.compare(flat, receiver, torch.arange(nodes * count), self.few_samples())
        return losses.view(nodes, count)

    def few_samples(self) -> Samples:
        """Each hosted node's samples by which it judges what it heard in this round."""
        return Samples(self.shard.data, self.shard.seed, "judge", self.round, FEW)

    def all_samples(self) -> Samples:
        """All samples that each hosted node holds."""
        return Samples(self.shard.data, self.shard.seed, "all", self.round, None)

    def only(self, rows: Tensor) -> Turn:
        """The turn of some of the hosted nodes (rows ascending), for work that not all of them need."""
        nodes = self.shard.nodes[rows.numpy()]
        shard = dataclasses.replace(self.shard, nodes=nodes, data=self.shard.data.only(nodes))
        local = tree.rows(self.local_parts, rows)
        if not isinstance(self.edges, Edges):
            return dataclasses.replace(self, shard=shard, local_parts=local)
        theirs = torch.isin(self.edges.receiver, rows)
        edges = Edges(torch.searchsorted(rows, self.edges.receiver[theirs]), self.edges.sender[theirs])
        return dataclasses.replace(self, shard=shard, edges=edges, local_parts=local)


def listed(shard: Shard, wanted: Edges | Everyone) -> Edges:
    """The edges themselves, also where they are everyone's."""
    if isinstance(wanted, Edges):
        return wanted
    row, sender = np.nonzero(shard.nodes[:, None] != np.arange(shard.n)[None, :])
    return Edges(torch.from_numpy(row), torch.from_numpy(sender))
