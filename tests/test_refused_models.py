"""Users' own modules that a run could not repeat, or would compute wrongly, are refused with a sentence."""

import random
from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from facade import ExperimentError
from facade.errors import DivergedError
from facade.experiment.setup import set_up
from facade.learning import models, rehearsal
from facade.learning.learner import Learner, Training
from facade.learning.optimisers import SGD
from facade.testing.contract import tiny
from facade.testing.driven import result_of
from learners import CLASSES, INPUTS, chain, learner


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
        set_up(tiny("el", "model.name=test_refused_models:TooMany"))


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
        rehearsal.outputs(factory(), torch.zeros(2, 1, 4, 4), 2)


def test_a_model_that_gives_no_finite_loss_ends_the_run():
    run_away = tiny("el", "training.rounds=1", "training.steps=1", "training.lr=1e30", "evaluation.every=1")
    with pytest.raises(
        DivergedError, match=r"node 0 gives no finite loss on its test data after round 1; try a smaller"
    ):
        result_of(run_away)


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
        rehearsal.outputs(rehearsal.new_model(factory, torch.float32, "cpu"), torch.zeros(2, 1, 4, 4), 2)


def with_weights_that_cannot_be_copied():
    layer = nn.Linear(16, CLASSES)
    layer.cache = layer.weight * 2
    return layer
