"""Nodes with a shared core and heads, of which they use one: how they start, what they train, what they deploy.

A core or a single head is a tree [S, ...], heads are one [S, k, ...].
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from facade.core import tree
from facade.core.tree import Params
from facade.core.turn import Shard, Turn
from facade.learning.optimisers import Memory


class CoreAndHeads(NamedTuple):
    """Per node: a core, k heads, what the optimiser remembers of each, and the head it uses."""

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


def start(shard: Shard, k: int, apart: bool) -> CoreAndHeads:
    """A core and k heads: each drawn for itself, or, if they need not be apart, copies of the first."""
    drawn = k if apart else 1
    models = [shard.learner.split(shard.learner.init(shard.seed, j, shard.nodes)) for j in range(drawn)]
    core, heads = models[0][0], tree.stack([head for _, head in models] * (k // drawn), axis=1)
    nobody = torch.zeros(len(shard.nodes), dtype=torch.int64)
    unscored = torch.full((len(shard.nodes), k), torch.nan, dtype=shard.learner.dtype)
    memory = shard.learner.memory
    return CoreAndHeads(core, heads, memory(core), memory(heads), nobody, unscored, shard.zeros())


def train(turn: Turn, state: CoreAndHeads, places: Tensor) -> CoreAndHeads:
    """H steps on the core and the chosen head, which then takes the places [S, k]."""
    choice, remembered = state.choice, state.heads_memory
    memory = {slot: joined(kept, chosen(remembered[slot], choice)) for slot, kept in state.core_memory.items()}
    fitted = turn.learner.fit(joined(state.core, chosen(state.heads, choice)), memory, turn.samples("train"))
    core, head = turn.learner.split(fitted.params)
    parts = {slot: turn.learner.split(kept) for slot, kept in fitted.memory.items()}
    return state._replace(
        core=core,
        heads=put(state.heads, head, places),
        core_memory={slot: of_core for slot, (of_core, _) in parts.items()},
        heads_memory={slot: put(remembered[slot], of_head, places) for slot, (_, of_head) in parts.items()},
        loss=fitted.loss,
    )


def deployed(state: CoreAndHeads) -> Params:
    """[S, ...] the model of every node: its core with the head it chose."""
    return joined(state.core, chosen(state.heads, state.choice))


def joined(core: Params, head: Params) -> Params:
    """The whole model of a core and a head, names in their usual order."""
    return {name: (core | head)[name] for name in sorted(core | head)}


def each_head(heads: Params) -> list[Params]:
    """The k heads, one by one."""
    count = next(iter(heads.values())).shape[1]
    return [tree.map(lambda leaf, j=j: leaf[:, j], heads) for j in range(count)]


def chosen(heads: Params, choice: Tensor) -> Params:
    """[S, ...] of the heads [S, k, ...], the one each node chose."""
    rows = torch.arange(len(choice))
    return {name: leaf[rows, choice] for name, leaf in heads.items()}


def put(heads: Params, head: Params, where: Tensor) -> Params:
    """Heads [S, k, ...] with `head` [S, ...] written where `where` [S, k] says so."""
    return tree.where(where.bool(), tree.map(lambda leaf: leaf.unsqueeze(1), head), heads)


def lowest(losses: Tensor, luck: Tensor) -> Tensor:
    """[S] the place of the lowest loss [S, k], NaN aside; among exact ties `luck` [S], from (0, 1), decides."""
    ranked = losses.masked_fill(losses.isnan(), torch.inf)
    best = ranked == ranked.min(1, keepdim=True).values
    tied = best.cumsum(1) - 1  # the place of each head among those that tie
    winner = (luck * best.sum(1)).long().unsqueeze(1)
    return (best & (tied == winner)).long().argmax(1)
