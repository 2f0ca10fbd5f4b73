"""Whether the heads of groups are worth it: nodes that look different may be served as well by one head, and better,
since it learns from all of them.

Until the trial is over every node keeps some of its samples from training. On these it compares the head of its group
with the mean of all heads, which is what one head would be, without what its label shares alone explain. If heads are
worth less than WORTH in the mean over groups, all nodes go on with that one head.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from torch import Tensor

from facade.algorithms.core_and_heads import CoreAndHeads, chosen
from facade.core import tree
from facade.core.tree import Params
from facade.core.turn import Turn
from facade.data.samples import Holdings, Samples

WORTH = 0.07
"""By how much a group's head must lower the loss, in nats, in the mean over groups."""
KEPT_BACK = 5
"""One of so many samples is not trained on."""


def training_on_the_rest(turn: Turn) -> Turn:
    """The turn without the samples that are kept back."""
    return dataclasses.replace(turn, shard=dataclasses.replace(turn.shard, data=_divided(turn.shard.data, back=False)))


def gains(turn: Turn, state: CoreAndHeads, shares: Tensor) -> Tensor:
    """[S] float64: by how much the head that a node uses lowers the loss of the samples it kept back, against the mean
    of all heads by their shares [S, k]; 0 where it has none."""
    kept = _divided(turn.shard.data, back=True)
    rows = torch.nonzero(torch.tensor([len(rows) for rows in kept.rows])).flatten()
    gain = torch.zeros(len(kept.rows), dtype=torch.float64)
    if len(rows):
        pair = tree.stack([chosen(state.heads, state.choice), mean_head(state.heads, shares)], axis=1)
        core, heads = tree.rows(state.core, rows), tree.rows(pair, rows)
        some = turn.only(rows)
        samples = Samples(kept.only(some.shard.nodes), some.shard.seed, "all", turn.round, None)
        held = some.shard.data.log_shares(slice(None), turn.learner.outputs)
        losses = some.learner.score(core, heads, samples, held).double()
        gain = gain.index_copy(0, rows, losses[:, 1] - losses[:, 0])
    return gain


def mean_head(heads: Params, shares: Tensor) -> Params:
    """[S, ...] the mean of a node's heads [S, k, ...] by the shares [S, k], in the order of heads."""

    def mean(leaf: Tensor) -> Tensor:
        weights = shares.to(leaf.dtype).view(*shares.shape, *([1] * (leaf.dim() - 2)))
        return torch.stack([weights[:, j] * leaf[:, j] for j in range(leaf.shape[1])]).sum(0)

    return tree.map(mean, heads)


def _divided(data: Holdings, back: bool) -> Holdings:
    """The samples that are kept back, or the others."""
    which = [np.arange(len(rows)) % KEPT_BACK == KEPT_BACK - 1 for rows in data.rows]
    return Holdings(data.samples, data.nodes, [rows[mask == back] for rows, mask in zip(data.rows, which, strict=True)])
