"""From outputs to confusion matrices and losses."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from facade.core import tree

_NODES_AT_ONCE = 32
"""Nodes whose views of the same outputs are judged together."""


class Counted(NamedTuple):
    """What can be added up over pieces of a test set: as in `learner.Examined`, but losses are sums."""

    confusion: Tensor
    loss: Tensor
    others: Tensor


def counted(logits: Tensor, y: Tensor, priors: list[Tensor] | None) -> Counted:
    """Outputs [b, m, C] of models for m samples of classes y, as `Learner.examine` says."""
    if priors is None:
        return _judged(logits.unsqueeze(1), y)
    pairs = zip(logits, priors, strict=True)
    parts = (out + some.unsqueeze(2) for out, prior in pairs for some in torch.split(prior, _NODES_AT_ONCE))
    return tree.concat([_judged(part, y) for part in parts])


def _judged(logits: Tensor, y: Tensor) -> Counted:
    """The same of outputs [b, 1 + p, m, C] to which priors were added."""
    size, views, _, classes = logits.shape
    cells = y * classes + logits.argmax(-1)
    counts = torch.zeros(size, views, classes * classes, dtype=torch.int64)
    counts = counts.scatter_add_(2, cells, torch.ones_like(cells)).view(size, views, classes, classes)
    losses = functional.cross_entropy(logits[:, 0].transpose(1, 2), y.expand(size, -1), reduction="none")
    return Counted(counts[:, 0], losses.double().sum(1), counts[:, 1:])
