"""The recommended guard: drop what one's own samples are worse off with, clip what differs much, leave out the extremes
of every number, and look again after mixing.

Own samples decide part by part, a core with one's own head, a head with one's own core: so what merely differs, as a
minority's messages do, is used. Clipping bounds what a message can do while models are too weak to tell good from bad,
and leaving out extremes undoes what few of those heard have in common, such as a trigger that own samples never show.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from facade.guards.clip import clipped
from facade.guards.guard import Guard, PartHeard, Verdict, median_of, norms, replaced
from facade.guards.own_data import OwnData
from facade.guards.trimmed import Trimmed

ENOUGH = 4
"""Members of a group from which on extremes are left out."""


@dataclass(frozen=True)
class Fair(Guard):
    """Drop what raises the loss on one's own samples, clip what differs much, leave out extremes."""

    gate = True
    reach: float = 0.5
    """Where too little was heard to compare, the share of its norm that one's own may be moved by, in the first
    round."""
    kappa: float = 1.0
    """How much that shrinks, as in BALANCE: by exp(-kappa) until the last round."""
    own_data: OwnData = field(default_factory=lambda: OwnData(floor=0.1, share=0.2))
    trimmed: Trimmed = field(default_factory=Trimmed)

    def judge(self, part: PartHeard) -> Verdict:
        distances = part.distances()
        harmful, own_loss = self._harmful(part, distances)
        radius = self._radius(part, distances, harmful)
        values = clipped(part._replace(values=replaced(part, harmful).values), distances, radius)
        used = part.here & ~harmful
        crowded = used & (_members(part.group, used) >= ENOUGH)
        values = self.trimmed.judge(part._replace(values=values, here=crowded)).values
        if harmful.any():  # with one's own there, who is dropped would dilute those of one's kind
            of_kind = _mean(values, used & (part.group == _own_group(part)))
            values = torch.where(harmful.unsqueeze(2), of_kind.unsqueeze(1), values)
        return Verdict(values, harmful, own_loss)

    def _harmful(self, part: PartHeard, distances: Tensor) -> tuple[Tensor, Tensor | None]:
        """As OwnData says; of many, those that differ most are judged: what is near one's own cannot do much."""
        suspect = distances.masked_fill(~(part.others & part.judged), -1.0).masked_fill(part.own, -2.0)
        places = suspect.topk(min(part.affordable, suspect.shape[1] - 1), dim=1).indices
        if part.own_loss is None or part.own_loss.isnan().any():
            places = torch.cat([part.own.long().argmax(1, keepdim=True), places], 1)
        harmful, own_loss = self.own_data.harmful(part.at(places), part.others.sum(1))
        return torch.zeros_like(part.here).scatter(1, places, harmful), own_loss

    def _radius(self, part: PartHeard, distances: Tensor, harmful: Tensor) -> Tensor:
        """[b, m] how far from one's own a value may be: the median distance of what is averaged with one's own."""
        comparable = part.others & ~harmful & (part.group == _own_group(part))
        usual = median_of(distances, comparable).unsqueeze(1)
        many = comparable & (comparable.sum(1, keepdim=True) >= ENOUGH - 1)
        if (part.own | many | ~part.here).all():
            return usual
        reach = self.reach * math.exp(-self.kappa * part.progress)
        return torch.where(many, usual, reach * norms(part.held))


def _own_group(part: PartHeard) -> Tensor:
    """[b, 1] the group of a node's own."""
    return part.group.masked_fill(~part.own, torch.iinfo(torch.int64).min).max(1, keepdim=True).values


def _members(group: Tensor, counted: Tensor) -> Tensor:
    """[b, m] how many of those that count [b, m] are in the group of each."""
    return ((group.unsqueeze(1) == group.unsqueeze(2)) & counted.unsqueeze(1)).sum(2)


def _mean(values: Tensor, counted: Tensor) -> Tensor:
    """[b, d] of those values [b, m, d] that count [b, m]."""
    total = torch.zeros_like(values[:, 0])
    for value, counts in zip(values.unbind(1), counted.unbind(1), strict=True):  # one after the other, equal to the bit
        total = torch.where(counts.unsqueeze(1), total + value, total)
    return total / counted.sum(1, keepdim=True)
