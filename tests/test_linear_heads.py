"""Private heads of one linear layer, fitted to a node's features."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from facade.algorithms.seeding.linear_heads import fitted as fitted_head
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


@pytest.mark.parametrize("shares", [None, torch.tensor([0.0, -2.0], dtype=torch.float64)])
@pytest.mark.parametrize("scale", [0.0, 0.01, 1.0, 100.0])
def test_a_private_head_fits_better_than_the_common_one_whatever_the_scale_of_features(scale, shares):
    draw = torch.Generator().manual_seed(0)
    z = scale * torch.randn(40, 8, generator=draw, dtype=torch.float64)
    y = torch.cat([torch.zeros(36, dtype=torch.int64), torch.ones(4, dtype=torch.int64)])
    common = {"head.weight": torch.zeros(2, 8, dtype=torch.float64), "head.bias": torch.zeros(2, dtype=torch.float64)}
    features = Features(z, y, shares)
    fitted = fitted_head(features, common, 80)

    def loss(head):
        return functional.cross_entropy(features.adjusted(z @ head["head.weight"].T + head["head.bias"]), y)

    assert loss(fitted) < loss(common)
