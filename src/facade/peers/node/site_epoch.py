"""An epoch as one node plays it: its number, its data, its neighbours, who may hear it."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from facade.core import tree
from facade.core.local_parts import published
from facade.core.message_parts import heard
from facade.core.messages import EVERYONE, Deliveries, Inbox
from facade.core.plan import Plan
from facade.core.tree import Params
from facade.core.turn import Shard
from facade.errors import FacadeError
from facade.experiment.setup import Setup
from facade.peers.node.carried_state import carried
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
    access: Access

    @classmethod
    def of(cls, site: Site, membership: Membership) -> SiteEpoch:
        """The epoch of a list, for a site."""
        if not membership.has(site.settings.id):
            raise RemovedError(f"'{site.settings.id}' is no member from round {membership.first_round} on; leaving")
        number, setup = membership.number(site.settings.id), set_up(site, membership)
        access = Access(setup.algorithm, setup.plan)
        return cls(membership, setup, setup.shard(np.array([number])), number, access)

    @property
    def plan(self) -> Plan:
        """What the run does besides the algorithm."""
        return self.setup.plan

    @property
    def others(self) -> list[int]:
        """All members but this one."""
        return [i for i in range(self.membership.n) if i != self.number]

    @property
    def last_exchange(self) -> int:
        """The last round that has an exchange."""
        return self.plan.rounds if self.plan.all_reduce else self.plan.rounds - 1

    def fresh(self) -> Any:
        """The state [1, ...] to begin with."""
        return self.setup.algorithm.init(self.shard)

    def carried(self, state: Params, earlier: Membership) -> Any:
        """The state [1, ...], flat, that was made under an earlier list, or this one, as one to go on with."""
        return carried(self.setup.algorithm, state, self.fresh(), earlier, self.membership)

    @functools.cached_property
    def parts(self) -> list[str]:
        """What the parts of a message that a guard judges are called, in their order."""
        algorithm, state = self.setup.algorithm, self.fresh()
        turn = self.plan.turn(self.shard, self.membership.first_round)
        own = inbox_of(self.number, published(algorithm, turn, state), {}, False)
        return [part.entry for part in algorithm.parts(turn, state, heard(own, slice(0, 1)))]

    def neighbours(self, round: int) -> list[int]:
        """Whom this node hears in a round's graph."""
        return self.access.neighbours(round, self.number)

    def entitled(self, round: int, caller: int) -> bool:
        """Whether a member may have this node's message of a round."""
        return self.access.has(round, self.number, caller)


def inbox_of(number: int, own: Any, others: dict[int, Any], everyone: bool) -> Inbox:
    """An inbox with one's own message [1, ...] and those heard, in ascending order of their senders."""
    pool = {number: own, **others}
    senders = sorted(pool)
    rows = [row for row, sender in enumerate(senders) if sender != number]
    deliveries = Deliveries(torch.zeros(len(rows), dtype=torch.int64), torch.tensor(rows, dtype=torch.int64))
    return Inbox(
        tree.concat([pool[sender] for sender in senders]),
        torch.tensor(senders),
        torch.tensor([senders.index(number)]),
        EVERYONE if everyone else deliveries,
    )
