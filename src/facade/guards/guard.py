"""What a guard is: a rule by which a node uses, changes or drops what it heard, part by part, before it is averaged.

A part that is dropped counts as what the node itself has in its place: so the usual mean, and every algorithm, stays as
it is. Write one by subclassing `Guard`, see docs/robustness.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor


class PartHeard(NamedTuple):
    """One part of what b nodes heard, with m places for each; all values of a part are one row of d numbers."""

    values: Tensor
    """[b, m, d]"""
    held: Tensor
    """[b, m, d] what the node itself has in its place."""
    here: Tensor
    """[b, m] which places hold anything."""
    own: Tensor
    """[b, m] which place holds the node's own."""
    group: Tensor
    """[b, m] of a node's places, those with the same number are averaged."""
    judged: Tensor
    """[b, m] which of them the node's own samples can judge."""
    losses: Callable[[Tensor], Tensor] | None
    """[b, p] losses on the node's own samples with each of the given [b, p, d] in the place of what it has; None where
    they say nothing of this part."""
    affordable: int
    """How many of them it may judge, besides its own."""
    guessing: float
    """The loss of a model that knows nothing, in nats."""
    own_loss: Tensor | None
    """[b] of the node's own model on these samples, where judging another part told it, else nan."""
    progress: float
    """Rounds done, as a share of all; 1 in the final exchange."""

    @property
    def others(self) -> Tensor:
        """[b, m] which places hold what another node sent."""
        return self.here & ~self.own

    def at(self, places: Tensor) -> PartHeard:
        """The part in some of its places [b, p] only."""

        rows = torch.arange(len(places)).unsqueeze(1)
        return self._replace(
            values=self.values[rows, places],
            held=self.held[rows, places],
            here=self.here[rows, places],
            own=self.own[rows, places],
            group=self.group[rows, places],
            judged=self.judged[rows, places],
        )

    def distances(self) -> Tensor:
        """[b, m] float64 norms of what differs from one's own."""
        return norms(self.values - self.held)


class Verdict(NamedTuple):
    """What a node uses of a part."""

    values: Tensor
    """[b, m, d]"""
    dropped: Tensor
    """[b, m] which of the others' values it did not use at all."""
    own_loss: Tensor | None = None
    """[b] of its own model on its own samples, where it is known now, else nan."""


@dataclass(frozen=True)
class Guard(ABC):
    """A rule for one part at a time; what a node decides depends on nothing but what it holds and heard."""

    gate: ClassVar[bool] = False
    """Whether a node that is served far worse after mixing than before goes on as if it had heard nobody."""

    @abstractmethod
    def judge(self, part: PartHeard) -> Verdict:
        """What is used of a part."""


def norms(values: Tensor) -> Tensor:
    """[b, m] float64, of values [b, m, d]."""
    single: Tensor = torch.linalg.vector_norm(values, dim=2)  # sums of doubles would take many times as long
    return single.double()


def replaced(part: PartHeard, dropped: Tensor) -> Verdict:
    """One's own in the place of what is dropped [b, m]."""
    values = torch.where(dropped.unsqueeze(2), part.held, part.values) if dropped.any() else part.values
    return Verdict(values, dropped)


def median_of(values: Tensor, which: Tensor) -> Tensor:
    """[b] the median of some of the values [b, m], the lower one of two; 0 where there are none."""
    return values.masked_fill(~which, torch.nan).nanmedian(1).values.nan_to_num(0.0)


def ordered(values: Tensor, members: Tensor) -> list[Tensor]:
    """m times [b, d]: every number's values in ascending order, those that do not count [b, m] at the end. Few places
    are sorted by comparing neighbours, all numbers at once, in a fraction of the time of a general sort."""
    counted = values if members.all() else values.masked_fill(~members.unsqueeze(2), torch.inf)
    places = list(counted.unbind(1))
    if len(places) > _FEW_PLACES:
        return list(counted.sort(1).values.unbind(1))
    for step in range(len(places)):
        for i in range(step % 2, len(places) - 1, 2):
            places[i : i + 2] = [pick(*places[i : i + 2]) for pick in (torch.minimum, torch.maximum)]
    return places


_FEW_PLACES = 40

GroupRule = Callable[[Tensor, Tensor], Tensor]
"""What values [b, m, d], of which those [b, m] count and at least one does, come to: [b, d]."""


def for_each_group(part: PartHeard, rule: GroupRule) -> Verdict:
    """In the place of every value what the rule makes of its group."""
    values = part.values
    for group in torch.unique(part.group[part.here]).tolist():
        members = part.here & (part.group == group)
        some = members.any(1)
        of_some = rule(*((part.values, members) if some.all() else (part.values[some], members[some]))).to(values.dtype)
        of_rows = of_some if some.all() else values.new_empty(len(some), values.shape[2]).index_put((some,), of_some)
        values = torch.where(members.unsqueeze(2), of_rows.unsqueeze(1), values)
    return Verdict(values, torch.zeros_like(part.here))
