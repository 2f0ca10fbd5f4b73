"""Users' own modules: whatever torch allows is trained and scored as torch would."""

from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from facade.core import tree
from facade.learning import models
from facade.learning.split_point import find_split_point
from facade.learning.stacked import Stacked
from facade.testing.contract import distance
from learners import CLASSES, NODES, SHAPE, chain, deep, learner, plain_loss, samples


def with_one_activation_twice():
    activation = nn.ReLU()
    return chain(nn.Linear(16, 8), activation, nn.Linear(8, 8), activation)


def with_one_layer_twice():
    layer = nn.Linear(8, 8)
    return chain(nn.Linear(16, 8), layer, nn.ReLU(), layer, nn.Tanh())


class Cosine(nn.Linear):
    def forward(self, z):
        return functional.linear(functional.normalize(z), functional.normalize(self.weight), self.bias)


def with_a_linear_layer_of_its_own_kind():
    return nn.Sequential(OrderedDict(core=nn.Sequential(nn.Flatten(), nn.Linear(16, 8)), head=Cosine(8, CLASSES)))


class Skipping(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)


def with_a_shortcut():
    return chain(nn.Linear(16, 8), Skipping(nn.Linear(8, 8), nn.Tanh()))


class Between(nn.Module):
    """Something happens between `features` and `head`."""

    def __init__(self):
        super().__init__()
        self.features, self.head = nn.Sequential(nn.Flatten(), nn.Linear(16, 8)), nn.Linear(8, CLASSES)

    def forward(self, x):
        return self.head(self.features(x).relu())


class Named(nn.Module):
    """The head is told more than the features."""

    class Head(nn.Linear):
        def forward(self, z, scale=1):
            return super().forward(z) * scale

    def __init__(self):
        super().__init__()
        self.core, self.head = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Tanh()), self.Head(8, CLASSES)

    def forward(self, x):
        return self.head(self.core(x), scale=3)


class ByKeyword(nn.Module):
    """The head's input is named, so that a hook before the head sees none."""

    def __init__(self):
        super().__init__()
        self.core, self.head = nn.Sequential(nn.Flatten(), nn.Linear(16, 8)), nn.Linear(8, CLASSES)

    def forward(self, x):
        return self.head(input=self.core(x))


class Constructed(nn.Sequential):
    """An nn.Sequential that is made of other things than layers."""

    def __init__(self, shape=SHAPE, classes=CLASSES):
        super().__init__(OrderedDict(conv=nn.Conv2d(shape[0], 2, 3), flat=nn.Flatten(), head=nn.Linear(8, classes)))


def convolutions_with_one_activation_twice():
    activation = nn.ReLU()
    layers = {"a": nn.Conv2d(1, 2, 3, padding=1), "b": activation, "c": nn.Conv2d(2, 2, 3), "d": activation}
    return nn.Sequential(OrderedDict(**layers, flat=nn.Flatten(), head=nn.Linear(8, CLASSES)))


def with_an_activation_at_the_end(activation):
    def made():
        layers = {"flat": nn.Flatten(), "core": nn.Linear(16, 8), "between": nn.Tanh(), "head": nn.Linear(8, CLASSES)}
        return nn.Sequential(OrderedDict(**layers, out=activation()))

    return made


class Tempered(nn.Module):
    """Divides what its head gives, in place."""

    def __init__(self):
        super().__init__()
        self.core, self.head = nn.Linear(16, 8), nn.Linear(8, CLASSES)

    def forward(self, x):
        y = self.head(self.core(x.flatten(1)))
        y /= 2
        return y


def with_a_head_that_begins_in_place():
    core, head = nn.Linear(16, 8), nn.Sequential(nn.ELU(inplace=True), nn.Linear(8, CLASSES))
    return nn.Sequential(OrderedDict(flat=nn.Flatten(), core=core, head=head))


class Random(nn.Module):
    """A fixed random projection in a buffer that a state_dict leaves out."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.rand(16), persistent=False)
        self.core, self.head = nn.Linear(16, 8), nn.Linear(8, CLASSES)

    def forward(self, x):
        return self.head(self.core(x.flatten(1) * self.mask).tanh())


OWN = {
    "a buffer outside the state_dict": Random,
    "a tanh at the end": with_an_activation_at_the_end(nn.Tanh),
    "a relu at the end": with_an_activation_at_the_end(nn.ReLU),
    "an output changed in place": Tempered,
    "a head that changes its input": with_a_head_that_begins_in_place,
    "a head called by keyword": ByKeyword,
    "an activation used twice": with_one_activation_twice,
    "a layer used twice": with_one_layer_twice,
    "a class derived from Linear": with_a_linear_layer_of_its_own_kind,
    "a class derived from Sequential": with_a_shortcut,
    "more between features and head": Between,
    "a head with a second argument": Named,
    "a Sequential with a constructor": Constructed,
    "convolutions, an activation used twice": convolutions_with_one_activation_twice,
}


@pytest.mark.parametrize("factory", OWN.values(), ids=OWN)
def test_a_model_is_trained_scored_and_delivered_as_one_and_the_same(factory):
    made = learner(factory, init="per-node")
    params = made.init(1, 0, np.arange(NODES))
    fitted = made.fit(params, made.memory(params), samples()).params
    core, _ = made.split(fitted)
    heads = tree.stack([made.split(made.init(2, j, np.arange(NODES)))[1] for j in range(2)], axis=1)
    losses = made.score(core, heads, samples("choose"))
    private = made.fit(fitted, made.memory(fitted), samples("private"), only="head").params
    for node in range(NODES):
        drawn = samples("choose").of(slice(node, node + 1))[0]
        for j in range(2):
            whole = tree.rows(core, node) | {name: leaf[node, j] for name, leaf in heads.items()}
            assert losses[node, j].item() == pytest.approx(plain_loss(factory(), whole, drawn).item(), rel=1e-9)
        assert all(torch.equal(leaf[node], private[name][node]) for name, leaf in core.items())
        drawn = samples().of(slice(node, node + 1))[0]
        trained, began = (plain_loss(factory(), tree.rows(which, node), drawn).item() for which in (fitted, params))
        assert trained < began
        x = made.inputs.prepare(drawn.x, torch.float64)
        delivered = made.module(tree.rows(fitted, node))(x)
        computed = made.executor.logits(tree.rows(fitted, slice(node, node + 1)), x)[0]
        assert torch.allclose(delivered, computed, rtol=0, atol=1e-12)


def convolutions():
    core = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.Conv2d(2, 2, 3), nn.Tanh(), nn.Flatten())
    return nn.Sequential(OrderedDict(core=core, head=nn.Linear(8, CLASSES)))


SEVERAL_PARTS = [
    (convolutions, ("core.2", "head"), "looped"),
    (convolutions, ("core.0", "head"), "looped"),
    (convolutions, ("core.2.weight", "head"), "looped"),
    (convolutions, ("core", "head"), "looped"),
    (deep, ("core.3", "head"), "stacked"),
    (deep, ("head.0", "head.2"), "stacked"),
    (deep, ("core", "head"), "stacked"),
    (deep, ("core.3.weight", "head"), "looped"),
]


@pytest.mark.parametrize(("factory", "head", "executor"), SEVERAL_PARTS)
def test_a_head_of_several_parts_is_scored_and_trained_whole(factory, head, executor):
    made = learner(factory, head=head, init="per-node")
    assert made.executor.name == executor
    params = made.init(1, 0, np.arange(NODES))
    core, _ = made.split(params)
    heads = tree.stack([made.split(made.init(2, j, np.arange(NODES)))[1] for j in range(2)], axis=1)
    losses = made.score(core, heads, samples("choose"))
    private = made.fit(params, made.memory(params), samples(), only="head").params
    for node in range(NODES):
        drawn = samples("choose").of(slice(node, node + 1))[0]
        for j in range(2):
            whole = tree.rows(core, node) | {name: leaf[node, j] for name, leaf in heads.items()}
            assert losses[node, j].item() == pytest.approx(plain_loss(factory(), whole, drawn).item(), rel=1e-9)
    for name, leaf in params.items():
        assert torch.equal(private[name], leaf) == (name in core), name


@pytest.mark.parametrize("executor", ["stacked", "looped"])
def test_of_a_part_without_weights_nothing_is_trained(executor):
    made = learner(lambda: models.softmax(SHAPE, CLASSES), executor=executor)
    params = made.init(1, 0, np.arange(NODES))
    fitted = made.fit(params, made.memory(params), samples(), only="core").params
    assert all(torch.equal(fitted[name], leaf) for name, leaf in params.items())


@pytest.mark.parametrize("factory", [pytest.param(f, id=name) for name, f in OWN.items() if f is not Random])
def test_a_model_is_trained_as_torch_trains_it(factory):
    made = learner(factory, init="per-node")
    params = made.init(1, 0, np.arange(NODES))
    fitted = made.fit(params, made.memory(params), samples()).params
    for node in range(NODES):
        drawn = samples().of(slice(node, node + 1))[0]
        weights = {name: leaf.clone().requires_grad_() for name, leaf in tree.rows(params, node).items()}
        for step in range(3):
            part = slice(4 * step, 4 * step + 4)
            loss = plain_loss(factory(), weights, drawn[part])
            found = torch.autograd.grad(loss, list(weights.values()), allow_unused=True)
            changed = zip(weights.items(), found, strict=True)
            weights = {
                name: (leaf if g is None else leaf - 0.1 * g).detach().requires_grad_() for (name, leaf), g in changed
            }
        assert distance(tree.rows(fitted, node), {name: leaf.detach() for name, leaf in weights.items()}) < 1e-12


def test_linear_layers_with_and_without_bias_are_stacked():
    assert isinstance(learner(lambda: chain(nn.Linear(16, 8), nn.Linear(8, 8, bias=False))).executor, Stacked)


@pytest.mark.parametrize("executor", ["auto", "looped"])
def test_frozen_and_unused_weights_stay_as_they_are(executor):
    def frozen():
        module = chain(nn.Linear(16, 8), nn.ReLU())
        module.core.requires_grad_(requires_grad=False)
        module.register_parameter("spare", nn.Parameter(torch.ones(2)))
        return module

    made = learner(frozen, executor=executor)
    params = made.init(1, 0, np.arange(NODES))
    fitted = made.fit(params, made.memory(params), samples()).params
    moved = {name for name, leaf in fitted.items() if not torch.equal(leaf, params[name])}
    assert moved == {"head.weight", "head.bias"}
    still = made.fit(params, made.memory(params), samples(), only="core").params
    assert all(torch.equal(leaf, params[name]) for name, leaf in still.items())


class Words(nn.Module):
    """Its inputs are numbers of words."""

    def __init__(self):
        super().__init__()
        self.core, self.head = nn.Embedding(256, 8), nn.Linear(8, CLASSES)

    def forward(self, x):
        return self.head(self.core(x.flatten(1).long()).mean(1))


def test_a_model_may_take_whole_numbers():
    assert learner(Words).outputs == CLASSES


@pytest.mark.parametrize("executor", ["auto", "looped"])
def test_a_head_with_an_activation_after_it_is_no_linear_one(executor):
    layers = {"flat": nn.Flatten(), "core": nn.Linear(16, 8), "head": nn.Linear(8, CLASSES), "out": nn.Tanh()}
    assert not learner(lambda: nn.Sequential(OrderedDict(layers)), executor=executor).head_is_linear


class Odd(nn.Module):
    """A weight without axes, and a mask with infinities."""

    def __init__(self):
        super().__init__()
        self.core, self.head = nn.Sequential(nn.Flatten(), nn.Linear(16, 8)), nn.Linear(8, CLASSES)
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.register_buffer("mask", torch.tensor([0.0, -torch.inf]))

    def forward(self, x):
        return self.head(self.core(x) * self.scale * self.mask.softmax(0)[0])


def test_weights_without_axes_and_masks_with_infinities_are_trained():
    made = learner(Odd)
    params = made.init(1, 0, np.arange(NODES))
    fitted = made.fit(params, made.memory(params), samples()).params
    assert not torch.equal(fitted["scale"], params["scale"])
    assert torch.equal(fitted["mask"], params["mask"])


class Frozen(nn.Module):
    """Keeps its normalisation in evaluation mode, also while it trains."""

    def __init__(self):
        super().__init__()
        self.core, self.head = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(16)), nn.Linear(16, CLASSES)

    def train(self, mode=True):
        super().train(mode)
        self.core.eval()
        return self

    def forward(self, x):
        return self.head(self.core(x))


@pytest.mark.parametrize("only", [None, "head", "core"])
def test_a_part_that_a_model_keeps_in_evaluation_mode_stays_in_it(only):
    made = learner(Frozen)
    params = made.init(1, 0, np.arange(NODES))
    fitted = made.fit(params, made.memory(params), samples(), only=only).params
    assert torch.equal(fitted["core.1.running_mean"], params["core.1.running_mean"])
    assert torch.equal(fitted["head.weight"], params["head.weight"]) == (only == "core")


class Sequence(nn.Module):
    """Features with time as the first axis, as torch's recurrent layers give them."""

    def __init__(self):
        super().__init__()
        self.core, self.head = nn.Linear(4, 8), Last()

    def forward(self, x):
        return self.head(self.core(x.flatten(0, 1)).transpose(0, 1))


class Last(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, CLASSES)

    def forward(self, z):
        return self.layer(z.mean(0))


class Listed(nn.Module):
    """A head that takes a list."""

    def __init__(self):
        super().__init__()
        self.core, self.head = nn.Linear(16, 8), Sum()

    def forward(self, x):
        z = self.core(x.flatten(1))
        return self.head([z, z])


class Sum(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, CLASSES)

    def forward(self, parts):
        return self.layer(sum(parts))


class Pair(nn.Module):
    """A head that gives more than the model."""

    def __init__(self):
        super().__init__()
        self.core, self.head = nn.Linear(16, 8), Twice()

    def forward(self, x):
        return self.head(self.core(x.flatten(1)))[0]


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, CLASSES)

    def forward(self, z):
        return self.layer(z), z


@pytest.mark.parametrize("factory", [Sequence, Listed, Pair])
def test_features_that_cannot_be_put_together_are_not_cut_out(factory):
    module = factory()
    assert find_split_point(module, ("head",), torch.zeros(2, *SHAPE)) is None
    assert module.training
    made = learner(factory)
    params = made.init(1, 0, np.arange(NODES))
    core, head = made.split(params)
    assert made.score(core, tree.map(lambda leaf: leaf.unsqueeze(1), head), samples()).isfinite().all()
