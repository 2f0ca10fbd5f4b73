"""Krum: of all that was heard, the one that most others are near to.

Blanchard et al., "Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent", NeurIPS 2017.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from facade.guards.guard import Guard, PartHeard, Verdict, for_each_group


@dataclass(frozen=True)
class Krum(Guard):
    """Use, of one's own and what was heard, the one that is nearest to most of the others."""

    bad: int = 1
    """How many of them may be bad."""

    def judge(self, part: PartHeard) -> Verdict:
        return for_each_group(part, self._nearest_to_most)

    def _nearest_to_most(self, values: Tensor, members: Tensor) -> Tensor:
        apart = (values.unsqueeze(1) - values.unsqueeze(2)).square().sum(3).double()
        pairs = members.unsqueeze(1) & members.unsqueeze(2)
        ordered = apart.masked_fill(~pairs, torch.inf).sort(2).values  # the first is the distance to itself
        count = members.sum(1)
        near = (count - self.bad - 2).clamp(min=1).minimum(count - 1)
        counted = torch.arange(members.shape[1]) <= near.view(-1, 1, 1)
        score = ordered.masked_fill(~counted, 0.0).sum(2).masked_fill(~members, torch.inf)
        return values[torch.arange(len(values)), score.argmin(1)]
