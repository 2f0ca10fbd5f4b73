"""D-PSGD: average with the same neighbours for ever.

Lian et al., "Can Decentralized Algorithms Outperform Centralized Algorithms?", NeurIPS 2017.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from facade.algorithms.one_model import ModelState, OneModel
from facade.core.messages import Deliveries, Inbox, mean, weighted
from facade.core.plan import Plan
from facade.core.turn import Turn
from facade.errors import ExperimentError


@dataclass(frozen=True)
class DPSGD(OneModel):
    """Decentralized parallel SGD: Metropolis-Hastings averaging on one fixed graph."""

    fresh = False

    def mix(self, turn: Turn, state: ModelState, inbox: Inbox) -> ModelState:
        if not isinstance(inbox.deliveries, Deliveries):  # equal degrees: all weights are 1/n
            return state._replace(model=mean(inbox, inbox.pool["model"]))
        members = inbox.members()
        receiver, sender = turn.shard.nodes[members.receiver], inbox.senders[members.message]
        degree = turn.degree.double()
        weights = 1 / (torch.maximum(degree[receiver], degree[sender]) + 1)
        own = inbox.own[members.receiver] == members.message
        weights[own] = 0
        heard = torch.zeros(len(inbox.own), dtype=torch.float64).index_add_(0, members.receiver, weights)
        weights[own] = 1 - heard  # the weight of a message that did not come stays with its receiver
        return state._replace(model=weighted(inbox, inbox.pool["model"], members, weights))

    def check(self, plan: Plan) -> list[str]:
        if plan.topology.directed:
            raise ExperimentError(
                f"dpsgd averages over mutual neighbours, but the topology {type(plan.topology).__name__} is directed;"
                " use topology.name = 'regular'"
            )
        return []
