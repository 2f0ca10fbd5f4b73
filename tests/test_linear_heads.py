"""Private heads of one linear layer, fitted to a node's features."""

import pytest
import torch
from torch import nn

from facade import ExperimentError
from facade.algorithms.seeding import linear_heads
from facade.algorithms.seeding.linear_heads import fitted as fitted_head
from facade.algorithms.seeding.linear_heads import row_losses
from facade.core import tree
from facade.learning import models
from facade.learning.learner import Features
from facade.testing.contract import tiny
from facade.testing.driven import result_of


class Uncut(nn.Module):
    """Its head is one linear layer, but its output is not the model's."""

    def __init__(self, shape, classes):
        super().__init__()
        self.core, self.head = models.softmax(shape, 64), nn.Linear(64, classes)

    def forward(self, x):
        return self.head(self.core(x).tanh()).log_softmax(1)


def test_a_linear_head_whose_features_cannot_be_had_is_fitted_by_training(recwarn):
    uncut = "model.name=test_linear_heads:Uncut"
    result = result_of(tiny("facade", uncut, "algorithm.seeding=farthest", "training.rounds=30"))
    assert "cannot be split before its head" in str(recwarn.pop(UserWarning).message)
    assert not result.learner.head_is_linear
    with pytest.raises(ExperimentError, match="heads = 'auto'"):
        result_of(tiny("facade", uncut, "algorithm.heads=auto", "training.rounds=80"))


@pytest.mark.parametrize("shares", [None, torch.tensor([0.0, -2.0], dtype=torch.float64)])
@pytest.mark.parametrize("scale", [0.0, 0.01, 1.0, 100.0])
def test_a_private_head_fits_better_than_the_common_one_whatever_the_scale_of_features(scale, shares):
    draw = torch.Generator().manual_seed(0)
    z = scale * torch.randn(40, 8, generator=draw, dtype=torch.float64)
    y = torch.cat([torch.zeros(36, dtype=torch.int64), torch.ones(4, dtype=torch.int64)])
    common = {"head.weight": torch.zeros(2, 8, dtype=torch.float64), "head.bias": torch.zeros(2, dtype=torch.float64)}
    features = Features(z, y, shares)
    fitted = fitted_head(features, common, 80)
    before, after = (row_losses(features, tree.map(lambda leaf: leaf[None], head)).mean() for head in (common, fitted))
    assert after < before


@pytest.mark.parametrize("shares", [None, torch.tensor([0.0, -2.0, -0.3], dtype=torch.float64)])
@pytest.mark.parametrize("scale", [0.0, 0.05, 1.0])
def test_heads_fitted_side_by_side_are_those_fitted_one_by_one(scale, shares):
    draw = torch.Generator().manual_seed(1)
    y = (torch.arange(60) ** 2) % 3
    z = scale * torch.randn(60, 4, dtype=torch.float64, generator=draw)
    weight = torch.randn(3, 4, dtype=torch.float64, generator=draw)
    head = {"head.weight": weight, "head.bias": torch.zeros(3, dtype=torch.float64)}
    fold = torch.empty_like(y)
    fold[torch.argsort(y, stable=True)] = torch.arange(60) % 5
    side = linear_heads._fitted_without(Features(z, y, shares), head, fold, 80)
    for part in range(5):
        one = fitted_head(Features(z[fold != part], y[fold != part], shares), head, 80)
        assert all(torch.allclose(side[name][part], leaf, atol=1e-9) for name, leaf in one.items())
