"""Self-centred clipping: what differs from one's own more than usual is moved towards it.

He, Karimireddy and Jaggi, "Byzantine-Robust Decentralized Learning via ClippedGossip", 2022. The radius there is one
that nobody knows; here it is the median distance of what a node heard.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from facade.guards.guard import Guard, PartHeard, Verdict, median_of


@dataclass(frozen=True)
class Clip(Guard):
    """Move what differs from one's own towards it, to the median distance heard."""

    def judge(self, part: PartHeard) -> Verdict:
        radius = median_of(part.distances(), part.others).unsqueeze(1)
        return Verdict(clipped(part, radius), torch.zeros_like(part.here))


def clipped(part: PartHeard, radius: Tensor) -> Tensor:
    """[b, m, d] the values, at most `radius` [b, 1] or [b, m] from one's own."""
    factor = (radius / part.distances().clamp(min=1e-30)).clamp(max=1.0).to(part.values.dtype).unsqueeze(2)
    nearer = part.held + (part.values - part.held) * factor
    return torch.where((factor < 1) & part.others.unsqueeze(2), nearer, part.values)
