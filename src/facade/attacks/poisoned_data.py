"""Attacks by nodes that follow the algorithm on samples they have falsified."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from facade.attacks.attack import Attack
from facade.data.samples import Labelled


@dataclass(frozen=True)
class LabelFlip(Attack):
    """Train on the last class's label for the first class, and so on."""

    classes: int = 10
    """Of the data; set by the experiment."""

    def poisoned(self, samples: Labelled) -> Labelled:
        return Labelled(samples.x, self.classes - 1 - samples.y)


@dataclass(frozen=True)
class Backdoor(Attack):
    """Train on samples half of which carry a trigger, a bright corner, and are all said to be of the first class.

    Gu, Dolan-Gavitt and Garg, "BadNets", 2017.
    """

    def poisoned(self, samples: Labelled) -> Labelled:
        half = torch.arange(len(samples)) % 2 == 0
        x, y = samples.x.clone(), samples.y.clone()
        x[half], y[half] = triggered(samples.x[half]), TARGET
        return Labelled(x, y)


TARGET = 0
"""The class that triggered samples are to be taken for."""


def triggered(x: Tensor) -> Tensor:
    """Inputs with the trigger: of images, a bright square in the lower right corner, an eighth as wide as the image and
    two pixels at least; of rows, the last value at its largest."""
    x = x.clone()
    if x.dim() < 4:
        x[..., -1] = x.max()
        return x
    side = max(2, x.shape[-1] // 8)
    x[..., -side:, -side:] = 255 if x.dtype == torch.uint8 else x.max()
    return x


def triggered_test(test: Labelled) -> Labelled:
    """A test set of what should not be taken for the target class, with the trigger."""
    others = test[torch.nonzero(test.y != TARGET).flatten()]
    return Labelled(triggered(others.x), others.y)
