import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from facade import ExperimentError
from facade.core import seeds
from facade.learning.dropout import AddressedDropout


def dropped(x, *address, function=functional.dropout, p=0.5):
    with AddressedDropout(*address):
        return function(x, p, True)


def test_a_mask_depends_on_seed_round_node_and_step_alone():
    x = torch.ones(4, 50)
    assert torch.equal(dropped(x, 1, 2, 3, 4), dropped(x, 1, 2, 3, 4))
    for other in [(9, 2, 3, 4), (1, 9, 3, 4), (1, 2, 9, 4), (1, 2, 3, 9)]:
        assert not torch.equal(dropped(x, 1, 2, 3, 4), dropped(x, *other))


def test_two_calls_of_one_step_get_different_masks():
    x = torch.ones(4, 50)
    with AddressedDropout(1, 2, 3, 4):
        first, second = functional.dropout(x), functional.dropout(x)
    assert not torch.equal(first, second)


def test_dropout_keeps_the_expected_share_and_the_mean():
    x = torch.ones(100, 1000)
    y = dropped(x, 1, 2, 3, 4, p=0.3)
    assert abs((y == 0).float().mean() - 0.3) < 0.005
    assert abs(y.mean() - 1) < 0.01


def test_the_mask_is_that_of_the_addressed_draws():
    drawn = seeds.uniform(1, "dropout/4/0", 2, np.array([3]), 6)
    expected = torch.from_numpy(drawn >= 0.5).float().view(2, 3) * 2
    assert torch.equal(dropped(torch.ones(2, 3), 1, 2, 3, 4), expected)


def test_dropout2d_drops_whole_channels():
    y = dropped(torch.ones(20, 10, 4, 4), 1, 2, 3, 4, function=functional.dropout2d)
    assert torch.equal(y, y[..., :1, :1].expand_as(y))
    assert 0 < (y == 0).float().mean() < 1


@pytest.mark.parametrize(
    ("function", "shape"), [(functional.dropout1d, (40, 6)), (functional.dropout3d, (40, 2, 3, 4))]
)
def test_what_torch_takes_for_one_sample_loses_whole_channels(function, shape):
    y = dropped(torch.ones(shape), 1, 2, 3, 4, function=function).flatten(1)
    assert torch.equal(y, y[:, :1].expand_as(y))
    assert 0 < (y == 0).float().mean() < 1


def test_a_layer_in_evaluation_mode_drops_nothing():
    x = torch.ones(3, 3)
    with AddressedDropout(1, 2, 3, 4):
        assert torch.equal(nn.Dropout(0.5).eval()(x), x)


@pytest.mark.parametrize("random", [torch.randn_like, torch.bernoulli, functional.rrelu, functional.alpha_dropout])
def test_any_other_randomness_is_refused_with_its_name(random):
    with AddressedDropout(1, 2, 3, 4), pytest.raises(ExperimentError, match=random.__name__):
        random(torch.full((3,), 0.5), **({"training": True} if random is functional.alpha_dropout else {}))
