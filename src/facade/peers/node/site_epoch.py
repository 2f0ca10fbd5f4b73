"""An epoch as one node plays it: its number, its data, its neighbours, who may hear it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from facade.core import tree
from facade.core.messages import EVERYONE, Deliveries, Inbox
from facade.core.plan import Plan
from facade.core.turn import Shard
from facade.errors import FacadeError
from facade.experiment.setup import Setup
from facade.peers.node.outgoing import SiteCheckpoint
from facade.peers.protocol.access import Access
from facade.peers.trust.membership import Membership
from facade.peers.trust.site import Site, set_up


class RemovedError(FacadeError):
    """The site is no longer a member."""


@dataclass(frozen=True, eq=False)
class SiteEpoch:
    """What follows from a list for one of its members."""

    membership: Membership
    setup: Setup
    shard: Shard
    number: int
    audience: Access

    @classmethod
    def of(cls, site: Site, membership: Membership) -> SiteEpoch:
        """The scene of a site."""
        if not membership.has(site.settings.id):
            raise RemovedError(f"'{site.settings.id}' is no member from round {membership.first_round} on; leaving")
        number, setup = membership.number(site.settings.id), set_up(site, membership)
        audience = Access(setup.algorithm, setup.plan)
        return cls(membership, setup, setup.shard(np.array([number])), number, audience)

    @property
    def plan(self) -> Plan:
        """What the run does besides the algorithm."""
        return self.setup.plan

    @property
    def others(self) -> list[int]:
        """All members but this one."""
        return [i for i in range(self.membership.n) if i != self.number]

    def start(self, saved: SiteCheckpoint | None) -> tuple[int, Any]:
        """(round, state) to go on from. What an algorithm remembers per member begins anew where
        the number of members has changed; all else is kept."""
        fresh = self.setup.algorithm.init(self.shard)
        if saved is None:
            return self.membership.first_round, fresh
        flat = {
            name: saved.state[name] if name in saved.state and saved.state[name].shape == leaf.shape else leaf
            for name, leaf in tree.flatten(fresh).items()
        }
        return saved.round, tree.unflatten(flat, fresh)

    def neighbours(self, round: int) -> list[int]:
        """Whom this node hears in a round's graph."""
        return self.audience.neighbours(round, self.number)

    def entitled(self, round: int, caller: int) -> bool:
        """Whether a member may have this node's message of a round."""
        return self.audience.has(round, self.number, caller)


def inbox_of(number: int, own: Any, heard: dict[int, Any], everyone: bool) -> Inbox:
    """An inbox with one's own message [1, ...] and those heard, in ascending order of their senders."""
    pool = {number: own, **heard}
    senders = sorted(pool)
    rows = [row for row, sender in enumerate(senders) if sender != number]
    deliveries = Deliveries(torch.zeros(len(rows), dtype=torch.int64), torch.tensor(rows, dtype=torch.int64))
    return Inbox(
        tree.concat([pool[sender] for sender in senders]),
        torch.tensor(senders),
        torch.tensor([senders.index(number)]),
        EVERYONE if everyone else deliveries,
    )
