"""Models of some ten million weights, as users bring them along."""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn

from facade.learning.models import BasicBlock


class Perceptron(nn.Sequential):
    """Two hidden layers of 2,000 units on images of 3x32x32: 10.2 million weights."""

    def __init__(self, classes: int = 10) -> None:
        layers = [nn.Flatten(), nn.Linear(3072, 2000), nn.ReLU(), nn.Linear(2000, 2000), nn.ReLU()]
        super().__init__(OrderedDict(core=nn.Sequential(*layers), head=nn.Linear(2000, classes)))


class Transformer(nn.Sequential):
    """Six layers of 384 values on the 64 patches of an image of 3x32x32: 10.7 million weights."""

    def __init__(self, classes: int = 10) -> None:
        layer = nn.TransformerEncoderLayer(384, 6, 1536, dropout=0.0, batch_first=True)
        encoder = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
        core = nn.Sequential(Patches(), nn.Linear(48, 384), encoder, Mean())
        super().__init__(OrderedDict(core=core, head=nn.Linear(384, classes)))


class Patches(nn.Module):
    """Images [N, 3, 32, 32] as patches of 4x4 pixels, [N, 64, 48]."""

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(-1, 3, 8, 4, 8, 4).permute(0, 2, 4, 1, 3, 5).reshape(-1, 64, 48)


class Mean(nn.Module):
    """The mean over patches."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1)


class ResNet18(nn.Sequential):
    """The usual ResNet of four times two blocks: 11.2 million weights."""

    def __init__(self, classes: int = 10) -> None:
        blocks = []
        for inputs, outputs in [(64, 64), (64, 128), (128, 256), (256, 512)]:
            blocks += [BasicBlock(inputs, outputs, outputs // inputs, nn.BatchNorm2d)]
            blocks += [BasicBlock(outputs, outputs, 1, nn.BatchNorm2d)]
        stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        core = nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        super().__init__(OrderedDict(core=core, head=nn.Linear(512, classes)))
