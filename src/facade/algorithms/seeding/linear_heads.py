"""Heads of one linear layer, fitted to the features of one node's samples.

Features z [rows, values] and classes y [rows] are those of one node; where they are given, a head has no node axis.
"""

from __future__ import annotations

import torch

from facade.core import tree
from facade.core.tree import Params
from facade.data.samples import Samples
from facade.learning.learner import Features, Learner


def fit_each(learner: Learner, core: Params, head: Params, samples: Samples, steps: int) -> Params:
    """[S, ...] heads fitted to all samples of each node, from its `head`, on top of its core."""

    def fit(row: int, features: Features) -> Params:
        return fitted(features, tree.rows(head, row), steps)

    return tree.stack(learner.with_features(core, samples, fit))


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


def _weight_and_bias(head: Params) -> tuple[str, str]:
    """The names of a linear layer's two tensors."""
    bias, weight = sorted(head)
    return weight, bias
