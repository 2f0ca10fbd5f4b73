"""FACADE: one shared core, k heads; nodes of one kind find each other by the head they choose.

Biswas et al., "Fair Decentralized Learning", SaTML 2025. Its round, and where it is here:

    (2a) receive core and head of the neighbours    the inbox of mix()
    (2b) average cores, and heads by their number   _average_by_head()
    (2c) identify the head with the lowest loss     _choose(), in local()
    (2d) train it with the core, H steps            _train(), in local()
    (3)  send core, head and its number             message()

The paper's round begins with receiving, this one with choosing: the same cycle, cut at another place. Before the
first choice all heads are one and everything is averaged as in EL (the warm-up); seeding then lets heads start apart
(seeding.py), and revival (revival.py) does it again for heads that nobody chooses any more: both are ours.
`tests/oracle/loops.py` has it all node by node in plain loops.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from facade.algorithms.base import Algorithm, chosen, joined, put
from facade.algorithms.seeding import farthest as farthest
from facade.algorithms.seeding import revival as windows
from facade.algorithms.seeding.health import MEMORY, Health, all_alive, dead, heard, unheard
from facade.core import seeds, tree
from facade.core.engine import Plan, Shard, Turn
from facade.core.messages import Inbox, mean, means, totals
from facade.core.tree import Params
from facade.errors import ExperimentError
from facade.learning.optimisers import Memory


class Phase(enum.Enum):
    """What a round is for. It follows from the round's number alone, so all nodes agree without a word."""

    WARM_UP = enum.auto()
    """Train one head in all places and average everything."""
    CALM = enum.auto()
    """Average without training, so that cores agree before heads are fitted on them."""
    SEEKING = enum.auto()
    """Agree by gossip on where heads start."""
    CHOOSING = enum.auto()
    """Choose a head, train it with the core, average heads by their number: FACADE proper."""


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
    """[S] mean training loss of the last round."""
    health: Health
    seeding: Any
    """What farthest-first seeding remembers; empty without it."""


@dataclass(frozen=True)
class Facade(Algorithm[State]):
    """Fair clustered learning: choose the best head, train it with the core, share both."""

    no_weights = frozenset({"bid"})
    heads: int | Literal["auto"] = 2
    """k; "auto": as many as seeding finds to be needed, at most max_heads."""
    max_heads: int = 6
    """How many heads "auto" may find."""
    warmup: int = 10
    """Rounds in which all heads are kept equal and everything is averaged as in EL."""
    scoring: Literal["shared", "independent"] = "shared"
    """Whether all heads are scored on the same samples; if not, chance decides between heads that are alike."""
    own_head: Literal["if-chosen", "always"] = "if-chosen"
    """Whether a node's own head counts in the mean of heads it did not choose."""
    seeding: Literal["none", "farthest"] = "farthest"
    """How heads start after the warm-up: each at the node worst served so far, or, as published, all equal."""
    revival: bool = False
    """Whether heads that have died are seeded again, every 50 rounds; needs seeding."""
    split: Literal["head", "all"] = "head"
    """With "all", the whole model is head, the core is empty (IFCA)."""

    def __post_init__(self) -> None:
        if self.k < 1 or self.warmup < 0:
            raise ValueError(f"heads = {self.k} and warmup = {self.warmup}: expected heads >= 1, warmup >= 0")
        if self.auto and (self.seeding != "farthest" or self.revival or self.max_heads < 2):
            raise ValueError("heads = 'auto' needs seeding = 'farthest', revival = false and max_heads >= 2")

    @property
    def auto(self) -> bool:
        """Whether seeding decides how many heads there are."""
        return self.heads == "auto"

    @property
    def k(self) -> int:
        """Heads a node has room for."""
        return self.max_heads if self.heads == "auto" else self.heads

    @property
    def choices(self) -> int:
        return self.k

    @property
    def all_head(self) -> bool:
        return self.split == "all"

    def init(self, shard: Shard) -> State:
        if self.auto and not shard.learner.head_is_linear:
            raise ExperimentError(
                "algorithm.heads = 'auto' judges heads of one linear layer, and this model's is another; say how many"
            )
        drawn = 1 if self.warmup else self.k  # after a warm-up all heads are one head's copies
        models = [shard.learner.split(shard.learner.init(shard.seed, j, shard.nodes)) for j in range(drawn)]
        core, heads = models[0][0], [head for _, head in models] * (self.k // drawn)
        stacked = tree.stack(heads, axis=1)
        memory = shard.learner.memory
        nobody = torch.zeros(len(shard.nodes), dtype=torch.int64)
        unscored = torch.full((len(shard.nodes), self.k), torch.nan, dtype=shard.learner.dtype)
        health = unheard(len(shard.nodes), self.k)
        begun = farthest.start(stacked) if self._seeds else {}
        return State(core, stacked, memory(core), memory(stacked), nobody, unscored, shard.zeros(), health, begun)

    def local(self, turn: Turn, state: State) -> State:
        phase = self._phase(turn)
        if phase is Phase.WARM_UP:
            return self._train(turn, state, torch.ones_like(state.head_losses, dtype=torch.bool))
        if phase is Phase.CALM:
            return state
        if self._seeds:
            state = self._sow(turn, state)
        if phase is Phase.SEEKING:
            return state
        if self.revival:
            state = self._revive(turn, state)
        state = self._choose(turn, state)
        return self._train(turn, state, torch.arange(self.k) == state.choice.unsqueeze(1))

    def message(self, turn: Turn, state: State) -> Any:
        if not self._seeds:
            return {"core": state.core, "head": chosen(state.heads, state.choice), "choice": state.choice}
        seeking = self._phase(turn) is Phase.SEEKING
        head = state.seeding.candidate if seeking else chosen(state.heads, state.choice)
        return {"core": state.core, "head": head, "choice": state.choice, "bid": farthest.bid(state.seeding)}

    def mix(self, turn: Turn, state: State, inbox: Inbox) -> State:
        phase = self._phase(turn)
        if phase is Phase.SEEKING:
            heard_all = all_alive(state.health, turn.round)
            return state._replace(seeding=farthest.listen(state.seeding, inbox), health=heard_all)
        if phase is not Phase.CHOOSING:
            return self._average_all(turn, state, inbox)
        state = self._average_by_head(turn, state, inbox)
        if self.revival:
            state = state._replace(seeding=windows.listen(turn, state.seeding, inbox, self._calendar))
        return state

    def finish(self, turn: Turn, state: State, inbox: Inbox) -> State:
        if turn.round <= self.warmup:  # no round has had a choice
            return self._average_all(turn, state, inbox)
        return self._average_by_head(turn, state, inbox)

    def model(self, state: State) -> Params:
        return joined(state.core, chosen(state.heads, state.choice))

    def models(self, state: State) -> list[Params]:
        return [joined(state.core, tree.map(lambda h, j=j: h[:, j], state.heads)) for j in range(self.k)]

    def notes(self, state: State) -> dict[str, Tensor]:
        return {
            "train_loss": state.loss,
            "choice": state.choice,
            "head_losses": state.head_losses,
            "head_shares": state.health.share.double().round(decimals=3),
            "head_last_heard": state.health.last,
        }

    def refuse(self, turn: Turn, message: Any) -> str | None:
        choice = int(message["choice"])
        if not 0 <= choice < self.k:
            return f"head {choice} does not exist, there are {self.k}"
        if self._seeds and not -1 <= int(message["bid"]["origin"]) < turn.shard.n:
            return f"a bid by node {int(message['bid']['origin'])}, which does not exist"
        return None

    def check(self, plan: Plan) -> list[str]:
        if self._seeds and not self.warmup:
            raise ExperimentError("algorithm.seeding = 'farthest' fits heads on a warm core; set algorithm.warmup > 0")
        if self._seeds and plan.rounds <= (ready := self._calendar.ready(plan.spread)):
            parts = f"warm-up {self.warmup}, averaging {farthest.CALM}, {self.k} heads of {plan.spread} each"
            raise ExperimentError(
                f"algorithm.seeding = 'farthest' takes {ready} rounds ({parts}), but training.rounds = {plan.rounds};"
                " train longer or set seeding = 'none'"
            )
        if self.revival and not self._seeds:
            raise ExperimentError(
                "algorithm.revival = true needs bids; set algorithm.seeding = 'farthest' and heads > 1"
            )
        if self.revival and plan.spread >= MEMORY:
            raise ExperimentError(
                f"algorithm.revival = true gossips for {plan.spread} rounds on this graph, and every {MEMORY}"
                " rounds anew; use a graph on which news travels faster"
            )
        warnings = []
        if self.warmup >= plan.rounds and self.k > 1:
            warnings.append(f"algorithm.warmup = {self.warmup} covers all {plan.rounds} rounds: this run is EL")
        missed = 1 - (1 - plan.network.loss) * (1 - plan.network.offline)
        if self._seeds and missed > (farthest.MOST_MISSED if plan.fresh else 0):
            trouble = f"network.loss = {plan.network.loss} and network.offline = {plan.network.offline}"
            graph = "" if plan.fresh else " on a graph that stays the same"
            warnings.append(
                f"{trouble}{graph}: some nodes may not hear which heads the others agreed on and start from other ones;"
                " a higher topology.degree helps"
            )
        return warnings

    @property
    def _seeds(self) -> bool:
        return self.seeding == "farthest" and self.k > 1

    @property
    def _calendar(self) -> farthest.Calendar:
        return farthest.Calendar(self.warmup, self.k)

    def _phase(self, turn: Turn) -> Phase:
        if turn.round < self.warmup:
            return Phase.WARM_UP
        if not self._seeds:
            return Phase.CHOOSING
        stage = self._calendar.stage(turn)
        return Phase.CALM if stage < 0 else Phase.SEEKING if stage < self.k else Phase.CHOOSING

    def _sow(self, turn: Turn, state: State) -> State:
        """Look for the next seed; when all are found, they become the heads."""
        stage = self._calendar.stage(turn)
        behind = state.seeding.stage < stage
        if not behind.any():
            return state
        common = tree.map(lambda leaf: leaf[:, 0], state.heads)
        seeding = farthest.advance(turn, state.seeding, state.core, common, stage, self.auto)
        if stage < self.k:
            return state._replace(seeding=seeding)
        sown = behind.unsqueeze(1) & seeding.found
        heads = tree.where(sown, seeding.seeds, state.heads)
        return state._replace(seeding=seeding, heads=heads, heads_memory=_forgotten(state.heads_memory, sown))

    def _revive(self, turn: Turn, state: State) -> State:
        model = windows.Model(state.core, state.heads, chosen(state.heads, state.choice))
        died = dead(state.health, turn.round)
        seeding, revived = windows.revive(turn, state.seeding, model, died, self._calendar)
        heads = put(state.heads, seeding.private, revived)
        return state._replace(seeding=seeding, heads=heads, heads_memory=_forgotten(state.heads_memory, revived))

    def _choose(self, turn: Turn, state: State) -> State:
        """Each node picks the head with the lowest loss on its own samples; heads that tie are drawn among."""
        if self.k == 1:
            return state
        luck = torch.from_numpy(seeds.uniform(turn.shard.seed, "choice", turn.round, turn.shard.nodes, 1)[:, 0])
        if turn.round == self.warmup > 0 and not self._seeds:  # equal by construction: there is nothing to score
            unscored = torch.full_like(state.head_losses, torch.nan)
            return state._replace(choice=(luck * self.k).long(), head_losses=unscored)
        losses = self._score(turn, state)
        if self.auto:  # a seed that was not needed is no choice, unless somebody was heard to make it
            there = state.seeding.found | (state.health.last >= self._calendar.ready(turn.plan.spread))
            losses = losses.masked_fill(~there, torch.nan)
        ranked = losses.masked_fill(losses.isnan(), torch.inf)
        best = ranked == ranked.min(1, keepdim=True).values
        tied = best.cumsum(1) - 1  # the place of each head among those that tie
        winner = (luck * best.sum(1)).long().unsqueeze(1)
        return state._replace(choice=(best & (tied == winner)).long().argmax(1), head_losses=losses)

    def _score(self, turn: Turn, state: State) -> Tensor:
        if self.scoring == "shared":
            return turn.learner.score(state.core, state.heads, turn.samples("choose"))
        each = [tree.map(lambda h, j=j: h[:, j : j + 1], state.heads) for j in range(self.k)]
        own = [turn.learner.score(state.core, head, turn.samples(f"choose-{j}")) for j, head in enumerate(each)]
        return torch.cat(own, 1)

    def _train(self, turn: Turn, state: State, trained: Tensor) -> State:
        """Train the core with the chosen head, which then takes the places `trained` [S, k]."""
        memory = {
            slot: joined(kept, chosen(state.heads_memory[slot], state.choice))
            for slot, kept in state.core_memory.items()
        }
        model = joined(state.core, chosen(state.heads, state.choice))
        fitted = turn.learner.fit(model, memory, turn.samples("train"))
        core, head = turn.learner.split(fitted.params)
        memories = {slot: turn.learner.split(kept) for slot, kept in fitted.memory.items()}
        return state._replace(
            core=core,
            heads=put(state.heads, head, trained),
            core_memory={slot: parts[0] for slot, parts in memories.items()},
            heads_memory={slot: put(state.heads_memory[slot], parts[1], trained) for slot, parts in memories.items()},
            loss=fitted.loss,
        )

    def _average_all(self, turn: Turn, state: State, inbox: Inbox) -> State:
        """As EL: the mean over all members of the core and of the one head, which takes every place."""
        core, head = mean(inbox, inbox.pool["core"]), mean(inbox, inbox.pool["head"])
        everywhere = torch.ones_like(state.head_losses, dtype=torch.bool)
        health = all_alive(state.health, turn.round)
        return state._replace(core=core, heads=put(state.heads, head, everywhere), health=health)

    def _average_by_head(self, turn: Turn, state: State, inbox: Inbox) -> State:
        """Core: the mean over all members. Head j: the mean over the members that chose j; a node
        that heard of none keeps its own."""
        choice = inbox.pool["choice"]
        core = mean(inbox, inbox.pool["core"])
        total = totals(inbox, inbox.pool["head"], choice, self.k)
        health = heard(state.health, total.counts, turn.round)
        if self.own_head == "always":
            stale = torch.arange(self.k) != choice[inbox.own].unsqueeze(1)
            sums = tree.where(stale, tree.map(torch.add, total.sums, state.heads), total.sums)
            total = total._replace(sums=sums, counts=total.counts + stale)
        heads = tree.where(total.counts > 0, means(total), state.heads)
        return state._replace(core=core, heads=heads, health=health)


def _forgotten(memory: Memory, heads: Tensor) -> Memory:
    """What the optimiser remembers, without that of the heads [S, k] that are replaced by others."""
    return tree.where(heads, tree.map(torch.zeros_like, memory), memory)
