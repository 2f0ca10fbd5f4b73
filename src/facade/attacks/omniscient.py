"""Attacks by nodes that see all messages before they send theirs, and agree on one lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from facade.attacks.attack import Attack, Scene
from facade.core import tree


@dataclass(frozen=True)
class LittleIsEnough(Attack):
    """Send what is a little off the mean, within what honest nodes differ by.

    Baruch, Baruch and Goldberg, "A Little Is Enough", NeurIPS 2019.
    """

    omniscient = True
    deviations: float = 1.5
    """How far, in standard deviations of each number over honest nodes."""

    def sent(self, scene: Scene, memory: Any) -> Any:
        def off(leaf: Tensor) -> Tensor:
            return leaf.mean(0) - self.deviations * leaf.std(0, correction=0)

        return scene.messages | _of_honest(scene, off)


@dataclass(frozen=True)
class InnerProduct(Attack):
    """Send the mean of honest nodes with its sign flipped, made small.

    Xie, Koyejo and Gupta, "Fall of Empires: Breaking Byzantine-tolerant SGD by Inner Product Manipulation", UAI 2019.
    """

    omniscient = True
    share: float = 0.5

    def sent(self, scene: Scene, memory: Any) -> Any:
        return scene.messages | _of_honest(scene, lambda leaf: -self.share * leaf.mean(0))


@dataclass(frozen=True)
class Mimic(Attack):
    """Send what the first honest node sends, so that it counts many times.

    Karimireddy, He and Jaggi, "Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing", ICLR 2022.
    """

    omniscient = True

    def sent(self, scene: Scene, memory: Any) -> Any:
        first = int(torch.nonzero(~scene.bad)[0])
        return tree.map(lambda leaf: leaf[first].expand_as(leaf), scene.messages)


def _of_honest(scene: Scene, combined: Any) -> dict[str, Any]:
    """For all nodes what `combined` makes of the weights of honest ones; of a head, of those that chose the same."""
    honest, choice = ~scene.bad, scene.messages.get("choice", torch.zeros(len(scene.bad)))
    made = {name: tree.map(torch.clone, part) for name, part in scene.weights.items()}
    for name in made:
        kinds = choice if name == "head" else torch.zeros_like(choice)
        for kind in torch.unique(kinds[scene.bad]).tolist():
            rows = honest & (kinds == kind)
            if not rows.any():
                continue
            one = tree.map(lambda leaf, rows=rows: combined(leaf[rows]), scene.weights[name])
            theirs = scene.bad & (kinds == kind)
            made[name] = tree.where(theirs, tree.map(lambda leaf: leaf.unsqueeze(0), one), made[name])
    return made
