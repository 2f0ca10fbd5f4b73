"""An algorithm among whose nodes there are attackers: what these publish, and what they train on, is not as it says."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from facade.attacks.attack import Attack, Scene
from facade.core import tree
from facade.core.messages import Edges, Everyone, Inbox, of_nodes, only_from
from facade.core.plan import Plan
from facade.core.stage import Stage
from facade.core.turn import Shard, Turn, listed
from facade.data.samples import Holdings, Labelled
from facade.errors import ExperimentError

Mix = Callable[[Turn, Any, Inbox], Any]


class AttackedState(NamedTuple):
    """Per node: the algorithm's own state, and what attackers remember."""

    inner: Any
    memory: Any


@dataclass(frozen=True)
class Attacked(Stage):
    """An algorithm some of whose nodes attack the others."""

    attack: Attack = field(kw_only=True)
    nodes: tuple[int, ...] = field(kw_only=True)
    """The attackers."""
    start: int = field(kw_only=True)
    """The round from which on they attack."""
    rounds: int = field(kw_only=True)
    """Of the run."""

    def own_members(self) -> tuple[dict[str, int], frozenset[str]]:
        """What attackers remember may be an earlier state."""
        axes = {f"memory/{path}": axis for path, axis in self.inner.member_axes.items()}
        return axes, frozenset(f"memory/{path}" for path in self.inner.member_numbers)

    def init(self, shard: Shard) -> AttackedState:
        inner = self.inner.init(shard)
        return AttackedState(inner, self.attack.begin(inner))

    def local(self, turn: Turn, state: AttackedState) -> AttackedState:
        inner, memory = self.inner.local(turn, state.inner), state.memory
        if turn.round < self.start:
            memory = self.attack.remember(self._scene(turn, inner), memory)
        return AttackedState(inner, memory)

    def message(self, turn: Turn, state: AttackedState) -> Any:
        scene = self._scene(turn, state.inner)
        if turn.round < self.start or not scene.bad.any():
            return scene.messages
        return tree.where(scene.bad, self.attack.sent(scene, state.memory), scene.messages)

    def wanted(self, turn: Turn, state: AttackedState) -> Edges | Everyone:
        wanted = self.inner.wanted(turn, state.inner)
        if not self.attack.silent or turn.round < self.start:
            return wanted
        edges = listed(turn.shard, wanted)
        heard = ~torch.isin(edges.sender, torch.tensor(self.nodes))
        return Edges(edges.receiver[heard], edges.sender[heard])

    def mix(self, turn: Turn, state: AttackedState, inbox: Inbox) -> AttackedState:
        return self._mixed(self.inner.mix, turn, state, inbox)

    def finish(self, turn: Turn, state: AttackedState, inbox: Inbox) -> AttackedState:
        if self.attack.silent:
            inbox = only_from(inbox, ~torch.isin(inbox.senders, torch.tensor(self.nodes)))
        return self._mixed(self.inner.finish, turn, state, inbox)

    def notes(self, state: AttackedState) -> dict[str, Tensor]:
        return self.inner.notes(state.inner)

    def check(self, plan: Plan) -> list[str]:
        if max(self.nodes) >= plan.n or min(self.nodes) < 0 or len(set(self.nodes)) == plan.n:
            raise ExperimentError(
                f"attack.nodes = {list(self.nodes)}: nodes are 0 to {plan.n - 1}, and at least one must be honest"
            )
        return self.inner.check(plan)

    def _mixed(self, mix: Mix, turn: Turn, state: AttackedState, inbox: Inbox) -> AttackedState:
        """Attackers go on with what they really have: for each, its own message is as the algorithm says, and those of
        other attackers are as they were sent, wherever they are hosted."""
        bad = self._bad(turn)
        if turn.round < self.start or not bad.any():
            return state._replace(inner=mix(turn, state.inner, inbox))
        inner, honest = state.inner, torch.nonzero(~bad).flatten()
        for some in (honest, *torch.nonzero(bad)):
            if len(some):
                heard = inbox if some is honest else self._with_truth(turn, state, inbox, some)
                mixed = mix(turn.only(some), tree.rows(state.inner, some), of_nodes(heard, some))
                inner = tree.map(lambda old, new, some=some: old.index_copy(0, some, new), inner, mixed)
        return state._replace(inner=inner)

    def _with_truth(self, turn: Turn, state: AttackedState, inbox: Inbox, row: Tensor) -> Inbox:
        """The inbox with what an attacker, in a row [1], would have sent."""
        true = self.inner.message(turn.only(row), tree.rows(state.inner, row))
        pool = tree.map(lambda leaf, own: leaf.index_copy(0, inbox.own[row], own), inbox.pool, true)
        return dataclasses.replace(inbox, pool=pool)

    def _scene(self, turn: Turn, inner: Any) -> Scene:
        messages = self.inner.message(turn, inner)
        return Scene(turn, self.inner, inner, messages, self._bad(turn), turn.round >= self.rounds)

    def _bad(self, turn: Turn) -> Tensor:
        """[S] which of the hosted nodes are attackers."""
        return torch.from_numpy(np.isin(turn.shard.nodes, self.nodes))


def poisoned(held: Holdings, attack: Attack, nodes: Collection[int]) -> Holdings:
    """The samples of the nodes that are held, with those of attackers as they make them."""
    x, y, rows = [held.samples.x], [held.samples.y], list(held.rows)
    count, places = len(held.samples), np.nonzero(np.isin(held.nodes, list(nodes)))[0].tolist()
    if not places:
        return held
    for place in places:
        own = held.samples[torch.from_numpy(held.rows[place])]
        false = attack.poisoned(own)
        if false is own:
            return held
        x, y = [*x, false.x], [*y, false.y]
        rows[place] = np.arange(count, count + len(own))
        count += len(own)
    return Holdings(Labelled(torch.cat(x), torch.cat(y)), held.nodes, rows)
