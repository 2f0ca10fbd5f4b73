"""Training alone: what every collaboration must beat, node by node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from facade.algorithms.one_model import ModelState, OneModel
from facade.core.messages import Edges, Inbox
from facade.core.turn import Turn


@dataclass(frozen=True)
class Local(OneModel):
    """Each node trains alone and sends nothing."""

    fresh = False
    all_reduce: bool = False

    def message(self, turn: Turn, state: ModelState) -> Any:
        return {}

    def wanted(self, turn: Turn, state: ModelState) -> Edges:
        nobody = torch.zeros(0, dtype=torch.int64)
        return Edges(nobody, nobody)

    def mix(self, turn: Turn, state: ModelState, inbox: Inbox) -> ModelState:
        return state
