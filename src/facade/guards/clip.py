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
        distances = part.distances()
        radius = median_of(distances, part.others).unsqueeze(1)
        return Verdict(clipped(part, distances, radius), torch.zeros_like(part.here))


def clipped(part: PartHeard, distances: Tensor, radius: Tensor) -> Tensor:
    """[b, m, d] the values, whose distances [b, m] are given, at most `radius` [b, 1] or [b, m] from one's own."""
    share = (radius / distances.clamp(min=1e-30)).clamp(max=1.0).masked_fill(part.own, 1.0)
    return torch.lerp(part.held, part.values, share.to(part.values.dtype).unsqueeze(2))
