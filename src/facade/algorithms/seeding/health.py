"""What a node knows of the heads from the choices it hears, without an extra byte on the wire.

On a fixed graph a node hears its neighbourhood only, so there this is what the neighbourhood uses.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

MEMORY = 50
"""Rounds after which a head that nobody was heard to use is held dead."""


class Health(NamedTuple):
    """Per node and head: who uses it, and since when nobody does."""

    last: Tensor
    """[S, k] the round in which a head was last heard of."""
    share: Tensor
    """[S, k] float32: how many of those heard use a head, averaged over about MEMORY rounds, from 0 on:
    until then they add up to less than 1."""


def unheard(nodes: int, heads: int) -> Health:
    """Before anything was heard."""
    return Health(torch.zeros(nodes, heads, dtype=torch.int64), torch.zeros(nodes, heads))


def all_alive(health: Health, round: int) -> Health:
    """In rounds in which no choices are made, every head counts as heard of."""
    return health._replace(last=torch.full_like(health.last, round))


def heard(health: Health, counts: Tensor, round: int) -> Health:
    """Add a round's choices: counts [S, k] of the members that chose each head."""
    share = (counts / counts.sum(1, keepdim=True)).float()
    last = torch.where(counts > 0, round, health.last)
    return Health(last, health.share + (share - health.share) / MEMORY)


def dead(health: Health, round: int) -> Tensor:
    """[S, k] the heads that a node has not heard of for MEMORY rounds."""
    return round - health.last >= MEMORY
