"""An algorithm and a model as a user would bring them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from facade.algorithms.one_model import ModelState, OneModel
from facade.core import tree
from facade.core.messages import Inbox, mean
from facade.core.turn import Turn


@dataclass(frozen=True)
class Reluctant(OneModel):
    """Each node goes only part of the way to the mean of its neighbourhood."""

    pace: float = 0.5

    def mix(self, turn: Turn, state: ModelState, inbox: Inbox) -> ModelState:
        target: Any = mean(inbox, inbox.pool["model"])
        return state._replace(model=tree.map(lambda own, goal: own + self.pace * (goal - own), state.model, target))


class Normed(nn.Module):
    """A convolution with batch normalisation, whose running statistics are float buffers, and dropout."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(shape[0], 4, 3, padding=1, bias=False),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Dropout(0.2),
        )
        self.head = nn.Linear(4 * (shape[1] // 2) * (shape[2] // 2), classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).flatten(1))
