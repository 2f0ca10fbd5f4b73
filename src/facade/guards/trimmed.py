"""The mean of every number without the largest and the smallest.

Yin et al., "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates", ICML 2018.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from facade.guards.guard import Guard, PartHeard, Verdict, for_each_group, ordered


@dataclass(frozen=True)
class Trimmed(Guard):
    """Use the mean, number by number, without the largest and the smallest of them."""

    share: float = 0.2
    """Of the values heard and one's own, how many are left out at each end."""

    def judge(self, part: PartHeard) -> Verdict:
        return for_each_group(part, self._trimmed)

    def _trimmed(self, values: Tensor, members: Tensor) -> Tensor:
        count = members.sum(1, keepdim=True)
        cut = (self.share * count).round().long().minimum((count - 1) // 2)
        place = torch.arange(members.shape[1])
        kept = (place >= cut) & (place < count - cut)
        total = torch.zeros_like(values[:, 0])
        for those, of_rows in zip(ordered(values, members), kept.unbind(1), strict=True):
            if of_rows.any():  # added one by one: a library's sum depends on how many places there are
                total += those if of_rows.all() else those.masked_fill(~of_rows.unsqueeze(1), 0.0)
        return total / (count - 2 * cut)
