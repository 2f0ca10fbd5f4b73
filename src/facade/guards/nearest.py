"""Nearest-neighbour averaging: leave out what is farthest from one's own.

Farhadkhani et al., "Robust Collaborative Learning with Linear Gradient Overhead", ICML 2023.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from facade.guards.guard import Guard, PartHeard, Verdict, replaced


@dataclass(frozen=True)
class Nearest(Guard):
    """Drop what is farthest from one's own."""

    bad: int = 1
    """How many are dropped."""

    def judge(self, part: PartHeard) -> Verdict:
        distances = part.distances().masked_fill(~part.others, -torch.inf)
        place = torch.argsort(distances, dim=1, descending=True, stable=True).argsort(dim=1)
        return replaced(part, part.others & (place < self.bad))
