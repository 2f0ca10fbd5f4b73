"""DAC: hear the peers whose models fit your own data.

Zec et al., "Decentralized adaptive clustering of deep nets is beneficial for client collaboration", 2022. How similar
another node is, is 1 / loss of its model on one's own data; peers are drawn from softmax(tau * similarity), and tau
rises over rounds (`a`, `b`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from facade.core import seeds
from facade.core.algorithm import Algorithm, part_of
from facade.core.message_parts import Heard, MessagePart
from facade.core.messages import Deliveries, Edges, Inbox, mean
from facade.core.plan import Plan
from facade.core.sums import waves
from facade.core.tree import Params
from facade.core.turn import Shard, Turn
from facade.errors import ExperimentError
from facade.learning.optimisers import Memory

MOST_NODES = 4096
LEAST_LOSS, MOST_LOSS = 1e-6, 1e6
"""Between these, losses make similarities; what is no number, of a model that somebody broke, counts as the most."""


class DacState(NamedTuple):
    """Per node: a model and how similar it holds every other node to be."""

    model: Params
    memory: Memory
    loss: Tensor
    """[S] mean training loss of the last round."""
    measured: Tensor
    """[S, n] float32: 1 / loss of the other's model on own samples; 0 = never met."""
    told: Tensor
    """[S, n] float32: what the bridge measured; 0 = nobody told."""
    bridge: Tensor
    """[S, n] the met peer whose word is taken for each unmet node; -1 = none."""


@dataclass(frozen=True)
class DAC(Algorithm[DacState]):
    """Decentralized adaptive clustering: draw peers in proportion to their models' similarity."""

    audience = "members"
    entries_without_weights = frozenset({"scores"})
    member_axes = MappingProxyType({"measured": 1, "told": 1, "bridge": 1})
    member_numbers = frozenset({"bridge"})
    all_reduce: bool = False
    """Off: one consensus model would undo what DAC does."""
    a: float = 30.0
    """How much more, in the end, similar peers are preferred than at first."""
    b: float = 0.2
    """How fast that comes, per round."""
    two_hop: bool = True
    """Whether nodes pass on the similarities they measured."""

    def __post_init__(self) -> None:
        if not (0 <= self.a < math.inf and 0 <= self.b < math.inf):
            raise ValueError(f"a = {self.a} and b = {self.b}: expected finite numbers of at least 0")

    def tau(self, round: int) -> float:
        """How sharply a round prefers similar peers: 1 at first, 1 + a in the limit."""
        return 2 * self.a / (1 + math.exp(-self.b * round)) - self.a + 1

    def init(self, shard: Shard) -> DacState:
        model = shard.learner.init(shard.seed, 0, shard.nodes)
        unmet = torch.zeros(len(shard.nodes), shard.n)
        return DacState(model, shard.learner.memory(model), shard.zeros(), unmet, unmet, unmet.long() - 1)

    def local(self, turn: Turn, state: DacState) -> DacState:
        fitted = turn.learner.fit(state.model, state.memory, turn.samples("train"))
        return state._replace(model=fitted.params, memory=fitted.memory, loss=fitted.loss)

    def message(self, turn: Turn, state: DacState) -> Any:
        return {"model": state.model} | ({"scores": state.measured} if self.two_hop else {})

    def wanted(self, turn: Turn, state: DacState) -> Edges:
        """As many peers as the graph has edges into a node, drawn without replacement from
        softmax(tau * similarity): the largest of similarity * tau + Gumbel noise."""
        shard = turn.shard
        similar = torch.where(state.measured > 0, state.measured, state.told).double()
        noise = torch.from_numpy(-np.log(-np.log(seeds.uniform(shard.seed, "dac", turn.round, shard.nodes, shard.n))))
        keys = self.tau(turn.round) * similar + noise
        keys[torch.arange(len(shard.nodes)), torch.from_numpy(shard.nodes)] = -torch.inf
        degree = turn.degree[torch.from_numpy(shard.nodes)]
        best = torch.argsort(keys, dim=1, descending=True, stable=True)[:, : int(degree.max())]
        row, place = torch.nonzero(torch.arange(best.shape[1]) < degree.unsqueeze(1), as_tuple=True)
        sender = best[row, place]
        order = torch.argsort(row * shard.n + sender)
        return Edges(row[order], sender[order])

    def mix(self, turn: Turn, state: DacState, inbox: Inbox) -> DacState:
        assert isinstance(inbox.deliveries, Deliveries), "as wanted() asked"
        receiver, message = inbox.deliveries
        losses = turn.learner.compare(inbox.pool["model"], receiver, message, turn.samples("compare"))
        measured = state.measured.clone()
        losses = losses.double().nan_to_num(MOST_LOSS).clamp(LEAST_LOSS, MOST_LOSS)
        measured[receiver, inbox.senders[message]] = (1 / losses).float()
        state = state._replace(model=mean(inbox, inbox.pool["model"]), measured=measured)
        return self._listen(state, inbox, inbox.deliveries) if self.two_hop else state

    def finish(self, turn: Turn, state: DacState, inbox: Inbox) -> DacState:
        return state._replace(model=mean(inbox, inbox.pool["model"]))

    def _listen(self, state: DacState, inbox: Inbox, heard: Deliveries) -> DacState:
        """Take a heard peer's word for the nodes it has met, if it is more similar to this node
        than the bridge so far. O(n) memory per node: an earlier bridge's word is not kept."""
        told, bridge = state.told.clone(), state.bridge.clone()
        for rows, messages, _ in waves(*heard):
            peer, scores = inbox.senders[messages].unsqueeze(1), inbox.pool["scores"][messages]
            known, now = state.measured[rows], bridge[rows]
            trust = torch.where(now >= 0, known.gather(1, now.clamp(min=0)), -torch.inf)
            better = (scores > 0) & ((known.gather(1, peer) > trust) | (now == peer))
            told[rows] = torch.where(better, scores, told[rows])
            bridge[rows] = torch.where(better, peer, now)
        return state._replace(told=told, bridge=bridge)

    def parts(self, turn: Turn, state: DacState, heard: Heard) -> list[MessagePart]:
        return [part_of(heard, "model", turn.losses)]

    def model(self, state: DacState) -> Params:
        return state.model

    def notes(self, state: DacState) -> dict[str, Tensor]:
        return {"train_loss": state.loss}

    def check(self, plan: Plan) -> list[str]:
        if plan.n > MOST_NODES:
            raise ExperimentError(
                f"dac keeps a similarity for every pair of nodes; {plan.n} nodes are more than the"
                f" {MOST_NODES} it is made for: use fewer nodes or another algorithm"
            )
        return []
