import pytest
import torch
from torch import nn

from facade.errors import ExperimentError
from facade.learning.models import MODELS, factory
from facade.learning.split_point import find_split_point

IMAGE = (3, 32, 32)


def size(module):
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(
    ("name", "shape", "classes", "whole", "head"),
    [
        ("gn-lenet", (3, 32, 32), 10, 89_834, 10_250),
        ("gn-lenet", (3, 64, 64), 10, 120_554, 40_970),
        ("resnet8", (3, 64, 64), 41, 312_649, 293_161),
        ("resnet8-gn", (3, 64, 64), 41, 312_649, 293_161),
        ("mlp", (1, 8, 8), 10, 4_810, 650),
        ("cnn", (1, 8, 8), 10, 1_898, 650),
        ("softmax", (10,), 4, 44, 44),
    ],
)
def test_models_have_the_published_sizes(name, shape, classes, whole, head):
    module = factory(name, shape, classes)()
    assert size(module) == whole
    assert size(module.head) == head
    assert module(torch.zeros(2, *shape)).shape == (2, classes)


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_a_core_and_a_head(name):
    module = factory(name, IMAGE, 10)()
    assert isinstance(module, nn.Sequential)
    assert [child for child, _ in module.named_children()] == ["core", "head"]
    if name == "softmax":
        return  # nothing to cut off: its core has no weights
    x = torch.rand(4, *IMAGE)
    cut = find_split_point(module.eval(), ("head",), x[:1])
    assert torch.equal(cut.head(module, cut.features(module, x)), module(x))


def test_gn_lenet_is_built_as_published():
    core = factory("gn-lenet", IMAGE, 10)().core
    convolutions = [layer for layer in core if isinstance(layer, nn.Conv2d)]
    assert [(c.in_channels, c.out_channels, c.kernel_size) for c in convolutions] == [
        (3, 32, (5, 5)), (32, 32, (5, 5)), (32, 64, (5, 5)),
    ]  # fmt: skip
    assert all(c.bias is not None for c in convolutions)
    assert [n.num_groups for n in core if isinstance(n, nn.GroupNorm)] == [2, 2, 2]


@pytest.mark.parametrize(("name", "norm"), [("resnet8", nn.BatchNorm2d), ("resnet8-gn", nn.GroupNorm)])
def test_resnet8_is_built_as_published(name, norm):
    module = factory(name, (3, 64, 64), 41)()
    convolutions = [layer for layer in module.modules() if isinstance(layer, nn.Conv2d)]
    assert len(convolutions) == 9
    assert all(c.bias is None for c in convolutions)
    assert sum(isinstance(layer, norm) for layer in module.modules()) == 9
    features = module.core(torch.rand(2, 3, 64, 64))
    assert features.shape == (2, 32, 64, 64)
    assert module.head[:2](features).shape == (2, 128, 16, 16)


def test_gray_and_oblong_images_fit_too():
    for name in ("cnn", "gn-lenet", "resnet8", "resnet8-gn", "mlp", "softmax"):
        assert factory(name, (1, 28, 20), 5)()(torch.rand(2, 1, 28, 20)).shape == (2, 5)


@pytest.mark.parametrize("name", ["cnn", "gn-lenet", "resnet8", "resnet8-gn"])
def test_models_for_images_refuse_tables_and_tiny_images(name):
    with pytest.raises(ExperimentError, match=f"model '{name}' needs images but the data are rows of 10 values"):
        factory(name, (10,), 4)()
    with pytest.raises(ExperimentError, match="these have 3x3; use 'mlp' or larger images"):
        factory(name, (1, 3, 3), 4)()


def test_an_unknown_model_suggests_the_nearest():
    with pytest.raises(ExperimentError, match="unknown model 'gn-lenett'; did you mean 'gn-lenet'"):
        factory("gn-lenett", IMAGE, 10)
