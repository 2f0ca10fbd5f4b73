"""Heads of one linear layer, fitted to the features of one node's samples and judged row by row.

Features z [rows, values] and classes y [rows] are those of one node; where they are given, a head has no node axis.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from facade.core import tree
from facade.core.tree import Params
from facade.data.samples import Samples
from facade.learning.learner import Features, Learner

FOLDS = 5
"""Parts of a node's samples of which each is judged by a head fitted to the others."""


def fit_each(learner: Learner, core: Params, head: Params, samples: Samples, steps: int) -> Params:
    """[S, ...] heads fitted to all samples of each node, from its `head`, on top of its core."""

    def fit(row: int, features: Features) -> Params:
        return fitted(features, tree.rows(head, row), steps)

    return tree.stack(learner.with_features(core, samples, fit))


def excess_of_each(learner: Learner, core: Params, head: Params, heads: Params, samples: Samples, steps: int) -> Tensor:
    """[S] float64: how much more the best of the heads [S, j, ...] costs a node than heads fitted to its own samples
    from `head`, in standard errors; NaN for fewer than five samples."""

    def judge(row: int, features: Features) -> Tensor:
        return excess(features, tree.rows(head, row), tree.rows(heads, row), steps)

    return torch.stack(learner.with_features(core, samples, judge))


def fitted(features: Features, head: Params, steps: int) -> Params:
    """The head after full-batch gradient descent. With a step of 2 / max(mean |z|^2, 1) the loss falls
    whatever the scale of the features: it is at most 2 / smoothness of the loss."""
    (z, y, _), names = features, _weight_and_bias(head)
    weight, bias = (head[name].clone() for name in names)
    step = 2 / z.square().sum(1).mean().clamp(min=1)
    for _ in range(steps):
        d = features.adjusted(torch.addmm(bias, z, weight.T)).softmax(1)
        d[torch.arange(len(z)), y] -= 1
        weight -= step / len(z) * (d.T @ z)
        bias -= step / len(z) * d.sum(0)
    return dict(zip(names, (weight, bias), strict=True))


def excess(features: Features, head: Params, heads: Params, steps: int) -> Tensor:
    """float64: how much more the best of the heads [j, ...] costs than heads fitted from `head`, in standard
    errors. Each fifth of the rows, and of the rows of each class, is judged by a head fitted to the others, so
    that fitting noise earns nothing. NaN for fewer than five rows."""
    z, y, _ = features
    if len(z) < FOLDS:
        return torch.tensor(torch.nan, dtype=torch.float64)
    fold = torch.empty_like(y)
    fold[torch.argsort(y, stable=True)] = torch.arange(len(y)) % FOLDS
    own = row_losses(features, _fitted_without(features, head, fold, steps))[fold, torch.arange(len(z))]
    theirs = row_losses(features, heads)
    more = theirs[theirs.mean(1).argmin()] - own
    return torch.div(more.mean(), more.std() / len(z) ** 0.5)


def _fitted_without(features: Features, head: Params, fold: Tensor, steps: int) -> Params:
    """[FOLDS, ...] what `fitted` gives for the rows outside each fold [rows], side by side: for small heads,
    the number of operations is what takes the time."""
    (z, y, _), names = features, _weight_and_bias(head)
    weight, bias = (head[name].expand(FOLDS, *head[name].shape).clone() for name in names)
    used = (fold != torch.arange(FOLDS).unsqueeze(1)).to(z.dtype)
    step = 2 / torch.maximum(used @ z.square().sum(1), used.sum(1))
    wanted = functional.one_hot(y, weight.shape[1]).to(z.dtype)
    for _ in range(steps):
        d = features.adjusted(z @ weight.transpose(1, 2) + bias.unsqueeze(1)).softmax(2)
        d = (d - wanted) * (used * step.unsqueeze(1)).unsqueeze(2)
        weight -= d.transpose(1, 2) @ z
        bias -= d.sum(1)
    return dict(zip(names, (weight, bias), strict=True))


def row_losses(features: Features, heads: Params) -> Tensor:
    """[j, rows] float64 loss of every head [j, ...] on every row."""
    weight, bias = (heads[name] for name in _weight_and_bias(heads))
    z, y, _ = features
    logits = features.adjusted(z @ weight.transpose(1, 2) + bias.unsqueeze(1))
    return functional.cross_entropy(logits.transpose(1, 2), y.expand(len(weight), -1), reduction="none").double()


def _weight_and_bias(head: Params) -> tuple[str, str]:
    """The names of a linear layer's two tensors."""
    bias, weight = sorted(head)
    return weight, bias
