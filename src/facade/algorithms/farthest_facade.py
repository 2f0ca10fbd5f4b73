"""FACADE whose heads start at the nodes worst served so far, or, as published, all alike; and what becomes of those
that nobody uses.

A round is FACADE's own (facade.py) unless it is one in which nodes agree on where heads start (seeding/farthest.py).
Beside it, every node keeps count of who uses which head (seeding/health.py), and may start dead ones anew
(seeding/revival.py). Without seeds and revival it is the published method, to the bit.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from facade.algorithms.core_and_heads import CoreAndHeads, chosen, put
from facade.algorithms.facade import Facade
from facade.algorithms.seeding import farthest
from facade.algorithms.seeding import revival as reviving
from facade.algorithms.seeding.health import MEMORY, Health, all_alive, dead, heard, unheard
from facade.core import tree
from facade.core.algorithm import Algorithm
from facade.core.message_parts import Heard, MessagePart
from facade.core.messages import Inbox, counts
from facade.core.plan import Plan
from facade.core.tree import Params
from facade.core.turn import Shard, Turn
from facade.errors import ExperimentError
from facade.learning.optimisers import Memory


class Phase(enum.Enum):
    """What a round is for. It follows from the round's number alone, so all nodes agree without a word."""

    WARM_UP = enum.auto()
    """Train one head in all places and average everything."""
    AVERAGING = enum.auto()
    """Average without training, so that cores agree before heads are fitted on them."""
    SEEKING = enum.auto()
    """Agree by gossip on where heads start."""
    CHOOSING = enum.auto()
    """Choose a head, train it with the core, average heads by their number: FACADE proper."""


class SeededState(NamedTuple):
    """Per node: what FACADE keeps, who uses which head, and what seeding remembers."""

    facade: CoreAndHeads
    health: Health
    seeding: Any
    """`farthest.Seeding`; empty without it."""


@dataclass(frozen=True)
class FarthestFacade(Algorithm[SeededState]):
    """FACADE whose heads start at the nodes worst served so far, or all alike."""

    published: Facade = Facade()
    """FACADE itself."""
    seeds: bool = True
    """Whether heads start apart."""
    revival: bool = False
    """Whether heads that have died are seeded again."""

    def init(self, shard: Shard) -> SeededState:
        facade = self.published.init(shard)
        seeding = farthest.start(facade.heads) if self.seeds else {}
        return SeededState(facade, unheard(len(shard.nodes), self.published.k), seeding)

    def local(self, turn: Turn, state: SeededState) -> SeededState:
        phase = self._phase(turn)
        if phase is Phase.AVERAGING:
            return state
        if self.seeds and phase is not Phase.WARM_UP:
            state = self._seek(turn, state)
        if phase is Phase.SEEKING:
            return state
        if self.revival and phase is Phase.CHOOSING:
            state = self._revive(turn, state)
        return state._replace(facade=self.published.local(turn, state.facade))

    def message(self, turn: Turn, state: SeededState) -> Any:
        message = self.published.message(turn, state.facade)
        if not self.seeds:
            return message
        candidate = {"head": state.seeding.candidate} if self._phase(turn) is Phase.SEEKING else {}
        return message | candidate | {"bid": farthest.bid(state.seeding)}

    def mix(self, turn: Turn, state: SeededState, inbox: Inbox) -> SeededState:
        phase = self._phase(turn)
        if phase is Phase.CHOOSING:
            state = self._average_by_head(turn, state, inbox)
            if self.revival:
                seeding = reviving.listen(turn, state.seeding, inbox, self._calendar)
                state = state._replace(seeding=seeding)
            return state
        state = state._replace(health=all_alive(state.health, turn.round))
        if phase is Phase.SEEKING:
            return state._replace(seeding=farthest.listen(state.seeding, inbox))
        return state._replace(facade=self.published.average_all(state.facade, inbox))

    def finish(self, turn: Turn, state: SeededState, inbox: Inbox) -> SeededState:
        if turn.round > self.published.warmup:
            return self._average_by_head(turn, state, inbox)
        health = all_alive(state.health, turn.round)
        return state._replace(facade=self.published.finish(turn, state.facade, inbox), health=health)

    def parts(self, turn: Turn, state: SeededState, heard: Heard) -> list[MessagePart]:
        """As FACADE's; while seeds are sought messages carry them in the place of heads, and neither is averaged."""
        return [] if self._phase(turn) is Phase.SEEKING else self.published.parts(turn, state.facade, heard)

    def model(self, state: SeededState) -> Params:
        return self.published.model(state.facade)

    def models(self, state: SeededState) -> list[Params]:
        return self.published.models(state.facade)

    def notes(self, state: SeededState) -> dict[str, Tensor]:
        return self.published.notes(state.facade) | {
            "head_shares": state.health.share.double().round(decimals=3),
            "head_last_heard": state.health.last,
        }

    def refuse(self, turn: Turn, message: Any) -> str | None:
        if self.seeds and not -1 <= (origin := int(message["bid"]["origin"])) < turn.shard.n:
            return f"a bid by node {origin}, which does not exist"
        return self.published.refuse(turn, message)

    def check(self, plan: Plan) -> list[str]:
        if self.revival and not self.seeds:
            raise ExperimentError(
                "algorithm.revival = true needs bids; set algorithm.seeding = 'farthest' and heads > 1"
            )
        if self.seeds:
            self._check_time(plan)
        warnings = []
        if self.published.warmup >= plan.rounds and self.published.k > 1:
            warnings.append(
                f"algorithm.warmup = {self.published.warmup} covers all {plan.rounds} rounds: this run is EL"
            )
        missed = 1 - (1 - plan.network.loss) * (1 - plan.network.offline)
        if self.seeds and missed > (farthest.MOST_MISSED if plan.fresh else 0):
            trouble = f"network.loss = {plan.network.loss} and network.offline = {plan.network.offline}"
            graph = "" if plan.fresh else " on a graph that stays the same"
            warnings.append(
                f"{trouble}{graph}: some nodes may not hear which heads the others agreed on and start from other ones;"
                " a higher topology.degree helps"
            )
        return warnings

    def _check_time(self, plan: Plan) -> None:
        """Refuse runs that leave no time for seeding or revival."""
        k, warmup = self.published.k, self.published.warmup
        if not warmup:
            raise ExperimentError("algorithm.seeding = 'farthest' fits heads on a warm core; set algorithm.warmup > 0")
        if plan.rounds <= (ready := self._calendar.ready(plan.spread)):
            parts = f"warm-up {warmup}, averaging {farthest.AVERAGING_ROUNDS}, {k} heads of {plan.spread} each"
            raise ExperimentError(
                f"algorithm.seeding = 'farthest' takes {ready} rounds ({parts}), but training.rounds = {plan.rounds};"
                " train longer or set seeding = 'none'"
            )
        if self.revival and plan.spread >= MEMORY:
            raise ExperimentError(
                f"algorithm.revival = true gossips for {plan.spread} rounds on this graph, and every {MEMORY}"
                " rounds anew; use a graph on which news travels faster"
            )

    @property
    def _calendar(self) -> farthest.Calendar:
        return farthest.Calendar(self.published.warmup, self.published.k)

    def _phase(self, turn: Turn) -> Phase:
        if turn.round < self.published.warmup:
            return Phase.WARM_UP
        if not self.seeds:
            return Phase.CHOOSING
        stage = self._calendar.stage(turn)
        return Phase.AVERAGING if stage < 0 else Phase.SEEKING if stage < self.published.k else Phase.CHOOSING

    def _seek(self, turn: Turn, state: SeededState) -> SeededState:
        """Look for the next seed; when all are found, they become the heads."""
        stage, facade = self._calendar.stage(turn), state.facade
        behind = state.seeding.stage < stage
        if not behind.any():
            return state
        common = tree.map(lambda leaf: leaf[:, 0], facade.heads)
        seeding = farthest.advance(turn, state.seeding, facade.core, common, stage)
        if stage == self.published.k:
            places = behind.unsqueeze(1) & seeding.found
            facade = _restarted(facade, tree.where(places, seeding.seeds, facade.heads), places)
        return state._replace(seeding=seeding, facade=facade)

    def _revive(self, turn: Turn, state: SeededState) -> SeededState:
        """Start dead heads anew where a window says so."""
        facade = state.facade
        model = reviving.ModelParts(facade.core, facade.heads, chosen(facade.heads, facade.choice))
        died = dead(state.health, turn.round)
        seeding, revived = reviving.revive(turn, state.seeding, model, died, self._calendar)
        heads = put(facade.heads, seeding.private, revived)
        return state._replace(seeding=seeding, facade=_restarted(facade, heads, revived))

    def _average_by_head(self, turn: Turn, state: SeededState, inbox: Inbox) -> SeededState:
        users = counts(inbox, inbox.pool["choice"], self.published.k)
        facade = self.published.average_by_head(state.facade, inbox)
        return state._replace(facade=facade, health=heard(state.health, users, turn.round))


def _restarted(state: CoreAndHeads, heads: Params, which: Tensor) -> CoreAndHeads:
    """The state with other heads, of which the optimiser remembers nothing where they are new [S, k]."""
    memory: Memory = tree.where(which, tree.map(torch.zeros_like, state.heads_memory), state.heads_memory)
    return state._replace(heads=heads, heads_memory=memory)
