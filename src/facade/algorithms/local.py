"""Training alone: what every collaboration must beat, node by node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from facade.algorithms.base import OneModel, Plain
from facade.core.engine import Turn
from facade.core.messages import Edges, Inbox


@dataclass(frozen=True)
class Local(OneModel):
    """Each node trains alone and sends nothing."""

    fresh = False
    all_reduce: bool = False

    def message(self, turn: Turn, state: Plain) -> Any:
        return {}

    def wanted(self, turn: Turn, state: Plain) -> Edges:
        nobody = torch.zeros(0, dtype=torch.int64)
        return Edges(nobody, nobody)

    def mix(self, turn: Turn, state: Plain, inbox: Inbox) -> Plain:
        return state
