"""Users' own modules: whatever torch allows is trained and scored as torch would, or refused with a sentence."""

import random
from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from contract.checks import distance, ran, tiny
from facade import ExperimentError, linear_heads, models, rehearsal, tree
from facade.cut import find_cut
from facade.errors import DivergedError
from facade.learner import Learner, Training
from facade.linear_heads import fitted as fitted_head
from facade.linear_heads import row_losses
from facade.optimisers import SGD
from facade.setup import set_up
from facade.stacked import Stacked
from learners import CLASSES, INPUTS, NODES, SHAPE, deep, learner, plain_loss, samples


def chain(*layers):
    return nn.Sequential(OrderedDict(core=nn.Sequential(nn.Flatten(), *layers), head=nn.Linear(8, CLASSES)))


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


def transformer():
    layer = nn.TransformerEncoderLayer(16, 2, 8, batch_first=True)
    return nn.Sequential(OrderedDict(flat=nn.Flatten(), core=layer, head=nn.Linear(16, CLASSES)))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.core, self.head = nn.LSTM(4, 8, num_layers=2, dropout=0.5, batch_first=True), nn.Linear(8, CLASSES)

    def forward(self, x):
        return self.head(self.core(x.flatten(1, 2))[0][:, -1])


class AlwaysDropping(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x):
        return self.head(functional.dropout(x.flatten(1)))  # in evaluation mode as well


UNREPEATABLE = {"transformer": transformer, "lstm": Recurrent, "dropout in evaluation": AlwaysDropping}


@pytest.mark.parametrize("factory", UNREPEATABLE.values(), ids=UNREPEATABLE)
def test_randomness_that_nobody_could_repeat_is_refused_before_the_run(factory):
    with pytest.raises(ExperimentError, match="draws random numbers that a run could not repeat"):
        learner(factory)


def test_averages_that_depend_on_a_count_are_refused():
    with pytest.raises(ExperimentError, match=r"'core\.2' is a batch normalisation with momentum=None"):
        learner(lambda: chain(nn.Linear(16, 8), nn.BatchNorm1d(8, momentum=None)))


def test_a_model_that_does_not_fit_the_data_is_refused():
    with pytest.raises(ExperimentError, match=r"cannot take inputs of shape \(1, 4, 4\): mat1 and mat2"):
        learner(lambda: chain(nn.Linear(15, 8)))
    with pytest.raises(ExperimentError, match=r"an output of shape \(2, 4, 3\) for 2 samples"):
        learner(lambda: nn.Sequential(OrderedDict(flat=nn.Flatten(1, 2), head=nn.Linear(4, CLASSES))))


def asserting():
    raise AssertionError("never on a Monday")


class Asserting(nn.Linear):
    def forward(self, x):
        assert x.shape[1] == 7, "seven inputs"
        return super().forward(x)


def test_errors_of_a_users_own_model_are_sentences():
    with pytest.raises(ExperimentError, match="the model cannot be made: AssertionError: never on a Monday"):
        learner(asserting)
    with pytest.raises(ExperimentError, match=r"cannot take inputs of shape \(1, 4, 4\): AssertionError: seven inputs"):
        learner(lambda: chain(Asserting(16, 8)))


def test_a_batch_normalisation_of_one_sample_is_refused():
    layers = chain(nn.Linear(16, 8), nn.BatchNorm1d(8))
    with pytest.raises(ExperimentError, match=r"cannot take batches of one of shape .*: Expected more than 1 value"):
        Learner(lambda: layers, ("head",), INPUTS, Training(steps=3, batch=1, optimiser=SGD(0.1)))


class TooMany(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.head = models.softmax(shape, 12)

    def forward(self, x):
        return self.head(x)


def test_a_model_with_other_outputs_than_classes_is_refused():
    with pytest.raises(ExperimentError, match=r"has 12 outputs, but the data have \d+ classes"):
        set_up(tiny("el", "model.name=test_own_models:TooMany"))


class Uncut(nn.Module):
    """Its head is one linear layer, but its output is not the model's."""

    def __init__(self, shape, classes):
        super().__init__()
        self.core, self.head = models.softmax(shape, 64), nn.Linear(64, classes)

    def forward(self, x):
        return self.head(self.core(x).tanh()).log_softmax(1)


def test_a_linear_head_whose_features_cannot_be_had_is_fitted_by_training(recwarn):
    result = ran(tiny("facade", "model.name=test_own_models:Uncut", "algorithm.seeding=farthest", "training.rounds=30"))
    assert "cannot be cut before its head" in str(recwarn.pop(UserWarning).message)
    assert not result.learner.head_is_linear
    with pytest.raises(ExperimentError, match="heads = 'auto'"):
        ran(tiny("facade", "model.name=test_own_models:Uncut", "algorithm.heads=auto", "training.rounds=80"))


@pytest.mark.parametrize("scale", [0.0, 0.01, 1.0, 100.0])
def test_a_private_head_fits_better_than_the_common_one_whatever_the_scale_of_features(scale):
    draw = torch.Generator().manual_seed(0)
    z = scale * torch.randn(40, 8, generator=draw, dtype=torch.float64)
    y = torch.cat([torch.zeros(36, dtype=torch.int64), torch.ones(4, dtype=torch.int64)])
    common = {"head.weight": torch.zeros(2, 8, dtype=torch.float64), "head.bias": torch.zeros(2, dtype=torch.float64)}
    fitted = fitted_head(z, y, common, 80)
    before, after = (row_losses(z, y, tree.map(lambda leaf: leaf[None], head)).mean() for head in (common, fitted))
    assert after < before


@pytest.mark.parametrize("scale", [0.0, 0.05, 1.0])
def test_heads_fitted_side_by_side_are_those_fitted_one_by_one(scale):
    draw = torch.Generator().manual_seed(1)
    y = (torch.arange(60) ** 2) % 3
    z = scale * torch.randn(60, 4, dtype=torch.float64, generator=draw)
    weight = torch.randn(3, 4, dtype=torch.float64, generator=draw)
    head = {"head.weight": weight, "head.bias": torch.zeros(3, dtype=torch.float64)}
    fold = torch.empty_like(y)
    fold[torch.argsort(y, stable=True)] = torch.arange(60) % 5
    side = linear_heads._fitted_without(z, y, head, fold, 80)
    for part in range(5):
        one = fitted_head(z[fold != part], y[fold != part], head, 80)
        assert all(torch.allclose(side[name][part], leaf, atol=1e-9) for name, leaf in one.items())


class Centred(nn.Module):
    """Changes the data that it is given."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x):
        x -= 3
        return self.head(x.flatten(1))


def with_an_activation_in_place_at_the_beginning():
    return nn.Sequential(OrderedDict(first=nn.ReLU(inplace=True), flat=nn.Flatten(), head=nn.Linear(16, CLASSES)))


@pytest.mark.parametrize("factory", [Centred, with_an_activation_in_place_at_the_beginning])
def test_a_model_that_changes_its_input_is_refused(factory):
    with pytest.raises(ExperimentError, match="the model changes its input in place"):
        rehearsal.outputs(factory(), (1, 4, 4), 2)


def test_a_model_that_gives_no_finite_loss_ends_the_run():
    run_away = tiny("el", "training.rounds=1", "training.steps=1", "training.lr=1e30", "evaluation.every=1")
    with pytest.raises(
        DivergedError, match=r"node 0 gives no finite loss on its test data after round 1; try a smaller"
    ):
        ran(run_away)


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


class Counting(nn.Module):
    """Depends on how often it was called."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(16, CLASSES)
        self.register_buffer("step", torch.tensor(0))

    def forward(self, x):
        if self.training:
            self.step += 1
        return self.head(x.flatten(1)) * min(int(self.step), 3)


class Depth(nn.Module):
    """Leaves itself out now and then, by a generator that is not torch's."""

    def __init__(self, draw):
        super().__init__()
        self.head, self.draw = nn.Linear(16, CLASSES), draw

    def forward(self, x):
        return self.head(x.flatten(1)) * (self.draw() < 0.5 if self.training else 1)


def drawn_by_numpy():
    return np.random.random()  # noqa: NPY002 - as people do


class WithMore(nn.Module):
    """Gives more than logits while it trains."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x):
        y = self.head(x.flatten(1))
        return (y, x.mean()) if self.training else y


@pytest.mark.parametrize(
    ("factory", "sentence"),
    [
        (Counting, "the model changes its buffer 'step', which holds torch.int64"),
        (lambda: Depth(random.random), "the model draws random numbers that a run could not repeat"),
        (lambda: Depth(drawn_by_numpy), "the model draws random numbers that a run could not repeat"),
        (WithMore, r"the model gives an output of type tuple for 2 samples; expected \[2, classes\]"),
        (lambda: nn.Sequential(OrderedDict(f=nn.Flatten(), head=nn.LazyLinear(3))), "'head.weight' has no size yet"),
        (lambda: nn.Sequential(nn.Flatten(), with_weights_that_cannot_be_copied()), "the model cannot be made: Only"),
    ],
)
def test_what_a_run_could_not_repeat_is_refused_in_a_sentence(factory, sentence):
    with pytest.raises(ExperimentError, match=sentence):
        rehearsal.outputs(rehearsal.made(factory, torch.float32, "cpu"), (1, 4, 4), 2)


def with_weights_that_cannot_be_copied():
    layer = nn.Linear(16, CLASSES)
    layer.cache = layer.weight * 2
    return layer


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
    assert find_cut(module, ("head",), torch.zeros(2, *SHAPE)) is None
    assert module.training
    made = learner(factory)
    params = made.init(1, 0, np.arange(NODES))
    core, head = made.split(params)
    assert made.score(core, tree.map(lambda leaf: leaf.unsqueeze(1), head), samples()).isfinite().all()
