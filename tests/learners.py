"""A small learner, what its nodes hold, and the same by torch alone."""

from collections import OrderedDict

import numpy as np
import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional

from facade.data.samples import Holdings, Labelled, Samples
from facade.learning import models
from facade.learning.inputs import Inputs
from facade.learning.learner import Learner, Training
from facade.learning.optimisers import SGD, Adam

SHAPE, CLASSES, NODES = (1, 4, 4), 3, 5
INPUTS = Inputs(SHAPE, [0.5], [0.25])

OPTIMISERS = {
    "sgd": (SGD(0.1), lambda weights: torch.optim.SGD(weights, 0.1)),
    "weight decay": (SGD(0.1, weight_decay=0.01), lambda weights: torch.optim.SGD(weights, 0.1, weight_decay=0.01)),
    "momentum": (SGD(0.1, momentum=0.9), lambda weights: torch.optim.SGD(weights, 0.1, momentum=0.9)),
    "nesterov": (
        SGD(0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
        lambda weights: torch.optim.SGD(weights, 0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    ),
    "adam": (Adam(0.01, weight_decay=0.01), lambda weights: torch.optim.Adam(weights, 0.01, weight_decay=0.01)),
}
"""Ours, and torch's own with the same settings."""


def random_images(count, draw):
    x = torch.randint(0, 256, (count, *SHAPE), dtype=torch.uint8, generator=draw)
    return Labelled(x, torch.randint(0, CLASSES, (count,), generator=draw))


def holdings():
    images = random_images(60, torch.Generator().manual_seed(0))
    rows = [np.arange(60)[node::NODES] for node in range(NODES)]
    return Holdings(samples=images, nodes=np.arange(NODES), rows=rows)


def samples(purpose="train", round=0, count=12):
    return Samples(holdings(), 7, purpose, round, count)


def learner(
    factory,
    *,
    head=("head",),
    local=(),
    optimiser=None,
    init="common",
    dtype=torch.float64,
    executor="auto",
    loss="plain",
):
    training = Training(steps=3, batch=4, optimiser=optimiser or SGD(0.1), init=init, loss=loss)
    return Learner(factory, head, INPUTS, training, local=local, dtype=dtype, executor=executor, threads=1)


def mlp():
    return models.mlp(SHAPE, CLASSES)


def chain(*layers):
    """A module of these layers, which give eight features, and a head."""
    return nn.Sequential(OrderedDict(core=nn.Sequential(nn.Flatten(), *layers), head=nn.Linear(8, CLASSES)))


def deep():
    core = nn.Sequential(nn.Flatten(), nn.Linear(16, 8, bias=False), nn.Tanh(), nn.Linear(8, 8), nn.ReLU())
    head = nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, CLASSES))
    return nn.Sequential(OrderedDict(core=core, head=head))


def normalised(x):
    """What INPUTS make of images."""
    return (x.to(torch.float64) / 255 - 0.5) / 0.25


def plain_loss(module, params, drawn):
    """The loss of one node's model by torch alone."""
    return functional.cross_entropy(functional_call(module.double().eval(), params, (normalised(drawn.x),)), drawn.y)
