"""Our optimisers step as torch's do."""

import pytest
import torch

from facade.learning.optimisers import SGD, Adam, Schedule
from learners import OPTIMISERS


@pytest.mark.parametrize("name", OPTIMISERS)
def test_steps_equal_those_of_torch(name):
    ours, theirs = OPTIMISERS[name]
    generator = torch.Generator().manual_seed(1)
    start = torch.randn(5, 3, dtype=torch.float64, generator=generator)
    weight = {"w": start.clone()}
    reference = start.clone().requires_grad_()
    optimiser, memory = theirs([reference]), ours.memory(weight, {"w": 2})
    for _ in range(6):
        gradient = torch.randn(5, 3, dtype=torch.float64, generator=generator)
        reference.grad = gradient.clone()
        optimiser.step()
        ours.step(weight, {"w": gradient}, memory, 0)
    assert torch.allclose(weight["w"], reference.detach(), rtol=1e-12, atol=1e-12)


def test_adam_counts_the_steps_of_a_weight_once():
    weights = {"w": torch.ones(3, 2, 4, 5), "scale": torch.ones(3, 2)}
    memory = Adam(0.1).memory(weights, {"w": 2, "scale": 0})
    assert memory["steps"]["w"].shape == (3, 2, 1, 1)
    assert memory["steps"]["scale"].shape == (3, 2)
    assert memory["mean"]["w"].shape == weights["w"].shape


def test_only_weights_with_a_gradient_move():
    weights = {"a": torch.ones(2), "b": torch.ones(2)}
    memory = SGD(0.1, momentum=0.9).memory(weights, {"a": 1, "b": 1})
    SGD(0.1, momentum=0.9).step(weights, {"a": torch.ones(2)}, memory, 0)
    assert weights["a"].tolist() == pytest.approx([0.9, 0.9])
    assert weights["b"].tolist() == [1, 1]
    assert memory["momentum"]["b"].tolist() == [0, 0]


def test_schedules_follow_their_formulas():
    assert Schedule().rate(0.5, 99) == 0.5
    cosine = Schedule("cosine", rounds=100)
    assert [cosine.rate(1.0, r) for r in (0, 50, 100)] == pytest.approx([1, 0.5, 0], abs=1e-12)
    step = Schedule("step", every=30, factor=0.1)
    assert [step.rate(1.0, r) for r in (0, 29, 30, 60)] == pytest.approx([1, 1, 0.1, 0.01])
