"""Where a model is split into core and head, also where the head lies inside it."""

from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn

from facade.core import tree
from facade.errors import ExperimentError
from facade.learning.torch_modules import under
from facade.testing.contract import tiny
from facade.testing.driven import result_of
from learners import (
    CLASSES,
    NODES,
    learner,
    mlp,
    plain_loss,
    samples,
)


def test_the_split_follows_the_prefixes_at_dots():
    made = learner(mlp, head=("core.1.bias", "head"), executor="looped")
    core, head = made.split(made.init(1, 0, np.arange(1)))
    assert sorted(core) == ["core.1.weight"]
    assert sorted(head) == ["core.1.bias", "head.bias", "head.weight"]
    assert under("head.weight", ("head",))
    assert under("head", ("head",))
    assert not under("header.weight", ("head",))
    assert under("anything", ("*",))


def test_a_head_that_names_no_parameter_is_refused_with_the_names_there_are():
    names = "core.1.weight, core.1.bias, head.weight, head.bias"
    last = "its last layer is 'head': try model.head = 'head'$"
    with pytest.raises(ExperimentError, match=f"model.head = 'hea' names no parameter; the model has: {names}; {last}"):
        learner(mlp, head=("hea",))
    with pytest.raises(ExperimentError, match=r"model\.head = 'fc' names no parameter"):
        result_of(tiny("facade", "model.head=fc"))


def middle():
    """The head lies between two parts of the core."""
    layers = OrderedDict(flat=nn.Flatten(), first=nn.Linear(16, 8), one=nn.Tanh(), head=nn.Linear(8, 8))
    return nn.Sequential(layers | OrderedDict(two=nn.Tanh(), last=nn.Linear(8, CLASSES)))


def test_a_head_inside_the_model_is_the_only_part_that_is_trained():
    made = learner(middle)
    params = made.init(1, 0, np.arange(NODES))
    fitted = made.fit(params, made.memory(params), samples(), only="head")
    changed = {name for name in params if not torch.equal(params[name], fitted.params[name])}
    assert changed == {"head.weight", "head.bias"}


def test_a_head_inside_the_model_is_scored():
    made = learner(middle)
    core, head = made.split(made.init(1, 0, np.arange(NODES)))
    losses = made.score(core, tree.stack([head, head], axis=1), samples("choose"))
    for node in range(NODES):
        drawn = samples("choose").of(slice(node, node + 1))[0]
        expected = plain_loss(middle(), tree.rows(core | head, node), drawn).item()
        assert losses[node].tolist() == pytest.approx([expected] * 2, rel=1e-12)
