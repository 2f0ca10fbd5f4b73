"""Drop what makes a node's own samples worse off: the check that knows no distances, and so no majority.

A part is judged in the node's own model, with all other parts as the node has them, and half-way between what the node
has and what it heard: for that is what averaging does, and two good models that were trained apart may each be bad for
the other's samples. How much worse is too much follows from what the node heard: the median of it, or a floor where
nothing can be compared.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from facade.guards.guard import Guard, PartHeard, Verdict, median_of, replaced

SEVERAL = 3
"""Values heard from which on their median says what is usual."""


@dataclass(frozen=True)
class OwnData(Guard):
    """Drop what raises the loss on one's own samples more than what is usually heard."""

    times: float = 3.0
    """How many times the median rise is accepted."""
    floor: float = 0.3
    """Nats that are accepted in any case."""
    share: float = 0.0
    """Of what a node's own model knows, in nats below guessing, how much is accepted in any case."""

    def judge(self, part: PartHeard) -> Verdict:
        harmful, own_loss = self.harmful(part, part.others.sum(1))
        return replaced(part, harmful)._replace(own_loss=own_loss)

    def harmful(self, part: PartHeard, heard: Tensor) -> tuple[Tensor, Tensor | None]:
        """[b, m] which of the others' values raise the loss too much, and [b] the loss of a node's own model, if known.
        `heard` [b] is how many values of others there are; those of the part are looked at, with a node's own among
        them unless its loss is known."""
        if part.losses is None or not part.here.shape[1]:
            return torch.zeros_like(part.here), part.own_loss
        half_way = (part.held + part.values) / 2
        losses = part.losses(half_way).double().nan_to_num(torch.inf, torch.inf, torch.inf)
        own = part.own & part.judged
        before = torch.where(own.any(1), losses.masked_fill(~own, 0.0).sum(1), torch.nan)
        before = before if part.own_loss is None else torch.where(part.own_loss.isnan(), before, part.own_loss)
        rise = losses - before.unsqueeze(1)
        counted = part.others & part.judged
        most_are = 2 * counted.sum(1) > heard  # or a few liars alone would say what is usual
        usual = median_of(rise, counted).clamp(min=0.0) * (most_are & (counted.sum(1) >= SEVERAL))
        accepted = (self.share * (part.guessing - before)).clamp(min=self.floor)
        most = (self.times * usual).maximum(accepted)
        return counted & ~(rise <= most.unsqueeze(1)), before
