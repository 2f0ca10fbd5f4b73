"""Rules as a user would bring them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from facade import Guard
from facade.guards.guard import PartHeard, Verdict, replaced


@dataclass(frozen=True)
class Everything(Guard):
    """Use everything as it comes."""

    def judge(self, part: PartHeard) -> Verdict:
        return Verdict(part.values, torch.zeros_like(part.here))


@dataclass(frozen=True)
class Nothing(Guard):
    """Drop all that others sent."""

    def judge(self, part: PartHeard) -> Verdict:
        return replaced(part, part.others)


@dataclass(frozen=True)
class Judgeless(Guard):
    """Says nothing."""


@dataclass(frozen=True)
class Demanding(Everything):
    """Cannot be made from its name alone."""

    strictness: float


class Plain(Everything):
    """Is no dataclass of its own."""

    strictness: float = 1.0
