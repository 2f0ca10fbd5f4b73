"""FACADE: one shared core, k heads; nodes of one kind find each other by the head they choose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from facade import seeds, tree
from facade.algorithms.base import Algorithm, chosen, joined
from facade.engine import Shard, Turn
from facade.messages import Inbox, mean, means, per_row, totals
from facade.optimisers import Memory
from facade.topology import Topology
from facade.tree import Params


class State(NamedTuple):
    """Per node: a core, k heads, what the optimiser remembers of each, and the last choice."""

    core: Params
    heads: Params
    """[S, k, ...]"""
    core_memory: Memory
    heads_memory: Memory
    choice: Tensor
    """[S] the head chosen last."""
    head_losses: Tensor
    """[S, k] what the choice was made from; NaN where no head was scored."""
    loss: Tensor


@dataclass(frozen=True)
class Facade(Algorithm[State]):
    """Fair clustered learning: choose the best head, train it with the core, share both."""

    heads: int = 2
    warmup: int = 10
    """Rounds in which all heads are kept equal and everything is averaged as in EL."""
    scoring: Literal["shared", "independent"] = "shared"
    """Whether all heads are scored on the same samples."""
    own_head: Literal["if-chosen", "always"] = "if-chosen"
    """Whether a node's own head counts in the mean of heads it did not choose."""
    split: Literal["head", "all"] = "head"
    """With "all", the whole model is head, the core is empty (IFCA)."""

    def __post_init__(self) -> None:
        if self.heads < 1 or self.warmup < 0:
            raise ValueError(f"heads = {self.heads} and warmup = {self.warmup}: expected heads >= 1, warmup >= 0")

    def init(self, shard: Shard) -> State:
        draws = [shard.learner.init(shard.seed, j, shard.nodes) for j in range(self.heads)]
        core = shard.learner.split(draws[0])[0]
        heads = [shard.learner.split(draw)[1] for draw in (draws if not self.warmup else draws[:1] * self.heads)]
        stacked = tree.stack(heads, axis=1)
        memory = shard.learner.memory
        nobody = torch.zeros(len(shard.nodes), dtype=torch.int64)
        unscored = torch.full((len(shard.nodes), self.heads), torch.nan, dtype=shard.learner.dtype)
        return State(core, stacked, memory(core), memory(stacked), nobody, unscored, shard.zeros())

    def local(self, turn: Turn, state: State) -> State:
        state = self._choose(turn, state)
        memory = {
            slot: joined(kept, chosen(state.heads_memory[slot], state.choice))
            for slot, kept in state.core_memory.items()
        }
        model = joined(state.core, chosen(state.heads, state.choice))
        fitted = turn.learner.fit(model, memory, turn.samples("train"))
        core, head = turn.learner.split(fitted.params)
        memories = {slot: turn.learner.split(kept) for slot, kept in fitted.memory.items()}
        trained = self._trained(turn.round, state.choice)
        return state._replace(
            core=core,
            heads=_put(state.heads, head, trained),
            core_memory={slot: parts[0] for slot, parts in memories.items()},
            heads_memory={slot: _put(state.heads_memory[slot], parts[1], trained) for slot, parts in memories.items()},
            loss=fitted.loss,
        )

    def message(self, turn: Turn, state: State) -> Any:
        return {"core": state.core, "head": chosen(state.heads, state.choice), "choice": state.choice}

    def mix(self, turn: Turn, state: State, inbox: Inbox) -> State:
        return self._mix(state, inbox, warm=turn.round < self.warmup)

    def finish(self, turn: Turn, state: State, inbox: Inbox) -> State:
        return self._mix(state, inbox, warm=turn.round <= self.warmup)

    def model(self, state: State) -> Params:
        return joined(state.core, chosen(state.heads, state.choice))

    def models(self, state: State) -> list[Params]:
        return [joined(state.core, tree.map(lambda h, j=j: h[:, j], state.heads)) for j in range(self.heads)]

    def notes(self, state: State) -> dict[str, Tensor]:
        return {"train_loss": state.loss, "choice": state.choice, "head_losses": state.head_losses}

    def refuse(self, turn: Turn, message: Any) -> str | None:
        choice = int(message["choice"])
        return None if 0 <= choice < self.heads else f"head {choice} does not exist, there are {self.heads}"

    def check(self, topology: Topology, nodes: int, rounds: int) -> list[str]:
        if self.warmup >= rounds > 0 and self.heads > 1:
            return [f"algorithm.warmup = {self.warmup} covers all {rounds} rounds: this run is EL"]
        return []

    def _choose(self, turn: Turn, state: State) -> State:
        """Each node picks the head with the lowest loss on its own samples."""
        unscored = torch.full_like(state.head_losses, torch.nan)
        luck = torch.from_numpy(seeds.uniform(turn.shard.seed, "choice", turn.round, turn.shard.nodes, 1)[:, 0])
        if self.heads == 1 or turn.round < self.warmup:
            return state._replace(choice=torch.zeros_like(state.choice), head_losses=unscored)
        if turn.round == self.warmup > 0:  # equal by construction: there is nothing to score
            return state._replace(choice=(luck * self.heads).long(), head_losses=unscored)
        losses = self._score(turn, state)
        best = losses == losses.min(1, keepdim=True).values
        tied = best.cumsum(1) - 1  # the how-manieth of the tied heads each one is
        winner = (luck * best.sum(1)).long().unsqueeze(1)
        return state._replace(choice=(best & (tied == winner)).long().argmax(1), head_losses=losses)

    def _score(self, turn: Turn, state: State) -> Tensor:
        if self.scoring == "shared":
            return turn.learner.score(state.core, state.heads, turn.samples("choose"))
        each = [tree.map(lambda h, j=j: h[:, j : j + 1], state.heads) for j in range(self.heads)]
        own = [turn.learner.score(state.core, head, turn.samples(f"choose-{j}")) for j, head in enumerate(each)]
        return torch.cat(own, 1)

    def _trained(self, round: int, choice: Tensor) -> Tensor:
        """[S, k] the heads that a round's training changes: the chosen one, in the warm-up all."""
        if round < self.warmup:
            return torch.ones(len(choice), self.heads, dtype=torch.bool)
        return torch.arange(self.heads) == choice.unsqueeze(1)

    def _mix(self, state: State, inbox: Inbox, warm: bool) -> State:
        """Core: the mean over all members. Head j: the mean over the members that chose j; a node
        that heard of none keeps its own."""
        choice = inbox.pool["choice"]
        core = mean(inbox, inbox.pool["core"])
        total = totals(inbox, inbox.pool["head"], choice, self.heads)
        if self.own_head == "always" and not warm:
            stale = torch.arange(self.heads) != choice[inbox.own].unsqueeze(1)
            sums = tree.map(lambda s, own: s + own * per_row(stale, own), total.sums, state.heads)
            total = total._replace(sums=sums, counts=total.counts + stale)
        heads = means(total)
        if warm:
            return state._replace(core=core, heads=tree.map(lambda h: h[:, :1].expand_as(h).clone(), heads))
        heads = tree.map(lambda new, own: torch.where(per_row(total.counts, own) > 0, new, own), heads, state.heads)
        return state._replace(core=core, heads=heads)


def _put(heads: Params, head: Params, where: Tensor) -> Params:
    """Heads [S, k, ...] with `head` [S, ...] written where `where` [S, k] says so."""
    return {
        name: torch.where(per_row(where, kept).bool(), head[name].unsqueeze(1), kept) for name, kept in heads.items()
    }
