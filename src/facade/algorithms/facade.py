"""FACADE as published: one shared core, k heads; nodes of one kind find each other by the head they choose.

Biswas et al., "Fair Decentralized Learning", SaTML 2025. Its round, and where it is here:

    (2a) receive core and head of the neighbours    the inbox of mix()
    (2b) average cores, and heads by their number   average_by_head()
    (2c) identify the head with the lowest loss     choose(), in local()
    (2d) train it with the core, H steps            train(), in local()
    (3)  send core, head and its number             message()

The paper's round begins with receiving, this one with choosing: the same cycle, cut at another place. Before the first
choice all heads are one and everything is averaged as in EL: the warm-up. How heads may start apart, and what becomes
of those that nobody chooses, is in seeded_facade.py; tests/oracle/loops.py has it all node by node in plain loops.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from facade.algorithms.core_and_heads import (
    CoreAndHeads,
    chosen,
    deployed,
    each_head,
    joined,
    lowest,
    put,
    start,
    train,
)  # fmt: skip
from facade.core import seeds, tree
from facade.core.algorithm import Algorithm, part_of
from facade.core.message_parts import Heard, MessagePart, side_by_side
from facade.core.messages import Inbox, mean, means, totals
from facade.core.tree import Params
from facade.core.turn import Shard, Turn


@dataclass(frozen=True)
class Facade(Algorithm[CoreAndHeads]):
    """Fair clustered learning: choose the best head, train it with the core, share both."""

    k: int = 2
    """Heads of every node."""
    warmup: int = 10
    scoring: Literal["shared", "independent"] = "shared"
    own_head: Literal["if-chosen", "always"] = "if-chosen"

    def init(self, shard: Shard) -> CoreAndHeads:
        return start(shard, self.k, apart=self.warmup == 0)

    def local(self, turn: Turn, state: CoreAndHeads) -> CoreAndHeads:
        if turn.round < self.warmup:
            return train(turn, state, places=torch.ones_like(state.head_losses))
        state = self.choose(turn, state)
        return train(turn, state, places=torch.arange(self.k) == state.choice.unsqueeze(1))

    def choose(self, turn: Turn, state: CoreAndHeads, among: Tensor | None = None) -> CoreAndHeads:
        """Each node picks the head with the lowest loss on its own samples; `among` those [S, k], if given."""
        if self.k == 1:
            return state
        luck = torch.from_numpy(seeds.uniform(turn.shard.seed, "choice", turn.round, turn.shard.nodes, 1)[:, 0])
        if turn.round == self.warmup > 0:  # equal by construction: there is nothing to score
            unscored = torch.full_like(state.head_losses, torch.nan)
            return state._replace(choice=(luck * self.k).long(), head_losses=unscored)
        losses = self.score(turn, state)
        losses = losses if among is None else losses.masked_fill(~among, torch.nan)
        return state._replace(choice=lowest(losses, luck), head_losses=losses)

    def score(self, turn: Turn, state: CoreAndHeads) -> Tensor:
        """[S, k] the loss of every head: all on the same samples, or each on samples of its own."""
        if self.scoring == "shared":
            return turn.learner.score(state.core, state.heads, turn.samples("choose"))
        alone = [tree.map(lambda leaf: leaf.unsqueeze(1), head) for head in each_head(state.heads)]
        losses = [turn.learner.score(state.core, head, turn.samples(f"choose-{j}")) for j, head in enumerate(alone)]
        return torch.cat(losses, 1)

    def message(self, turn: Turn, state: CoreAndHeads) -> Any:
        return {"core": state.core, "head": chosen(state.heads, state.choice), "choice": state.choice}

    def mix(self, turn: Turn, state: CoreAndHeads, inbox: Inbox) -> CoreAndHeads:
        return self.average_all(state, inbox) if turn.round < self.warmup else self.average_by_head(state, inbox)

    def finish(self, turn: Turn, state: CoreAndHeads, inbox: Inbox) -> CoreAndHeads:
        return self.average_all(state, inbox) if turn.round <= self.warmup else self.average_by_head(state, inbox)

    def parts(self, turn: Turn, state: CoreAndHeads, heard: Heard) -> list[MessagePart]:
        """A core is judged with one's own head; a head with one's own core, against the head of its number, by those
        who use it."""
        choice = heard.messages["choice"]
        if turn.round < self.warmup:  # all heads are one
            choice = torch.zeros_like(choice)
        own = chosen(state.heads, state.choice)
        core = part_of(heard, "core", lambda cores: turn.losses(joined(cores, side_by_side(own, cores))))
        rows = torch.arange(len(choice)).unsqueeze(1)
        held = tree.map(lambda leaf: leaf[rows, choice], state.heads)
        own_head = heard.here & (choice == choice[heard.own].unsqueeze(1))
        whole_core = state.core | turn.local_parts

        def losses(heads: Params) -> Tensor:
            return turn.learner.score(whole_core, heads, turn.few_samples())

        features_once = turn.learner.executor.features_once
        affordable = choice.shape[1] if features_once else core.affordable
        head = MessagePart("head", held, choice, own_head, losses, affordable)
        return [head, core]  # judging heads takes least, and tells the loss of one's own model

    def average_all(self, state: CoreAndHeads, inbox: Inbox) -> CoreAndHeads:
        """As EL: the mean over all members of the core and of the one head, which takes every place."""
        core, head = mean(inbox, inbox.pool["core"]), mean(inbox, inbox.pool["head"])
        return state._replace(core=core, heads=put(state.heads, head, torch.ones_like(state.head_losses)))

    def average_by_head(self, state: CoreAndHeads, inbox: Inbox) -> CoreAndHeads:
        """Core: the mean over all members. Head j: over those that chose j; if there is none, a node keeps its own."""
        choice = inbox.pool["choice"]
        total = totals(inbox, inbox.pool["head"], choice, self.k)
        if self.own_head == "always":
            stale = torch.arange(self.k) != choice[inbox.own].unsqueeze(1)
            sums = tree.where(stale, tree.map(torch.add, total.sums, state.heads), total.sums)
            total = total._replace(sums=sums, counts=total.counts + stale)
        heads = tree.where(total.counts > 0, means(total), state.heads)
        return state._replace(core=mean(inbox, inbox.pool["core"]), heads=heads)

    def model(self, state: CoreAndHeads) -> Params:
        return deployed(state)

    def models(self, state: CoreAndHeads) -> list[Params]:
        return [joined(state.core, head) for head in each_head(state.heads)]

    def notes(self, state: CoreAndHeads) -> dict[str, Tensor]:
        return {"train_loss": state.loss, "choice": state.choice, "head_losses": state.head_losses}

    def refuse(self, turn: Turn, message: Any) -> str | None:
        choice = int(message["choice"])
        return None if 0 <= choice < self.k else f"head {choice} does not exist, there are {self.k}"
