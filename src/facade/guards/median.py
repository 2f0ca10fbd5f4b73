"""The median of every number.

Yin et al., "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates", ICML 2018.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from facade.guards.guard import Guard, PartHeard, Verdict, for_each_group, ordered


@dataclass(frozen=True)
class Median(Guard):
    """Use the median, number by number, of one's own and what was heard."""

    def judge(self, part: PartHeard) -> Verdict:
        return for_each_group(part, _median)


def _median(values: Tensor, members: Tensor) -> Tensor:
    """[b, d] of an even number, the mean of the two in the middle."""
    sorted_values, count = torch.stack(ordered(values, members), 1), members.sum(1)
    rows = torch.arange(len(count))
    return (sorted_values[rows, (count - 1) // 2] + sorted_values[rows, count // 2]) / 2
