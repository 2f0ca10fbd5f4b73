"""The last gate: a node that is served far worse after mixing than before goes on as if it had heard nobody.

How much worse mixing usually makes it, a node knows from its own rounds: a minority's loss rises a little every time.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from facade.core.tree import Params
from facade.core.turn import Turn

MEMORY = 10
"""Rounds over which the usual rise is averaged."""
TIMES = 4.0
"""How many times the usual rise is accepted."""
FLOOR = 1.0
"""Nats that are accepted in any case."""


class Passage(NamedTuple):
    """What came of the gate."""

    closed: Tensor
    """[S] whether a node is served far worse."""
    rise: Tensor
    """[S] float64: the usual rise, this round included; of a closed gate only what would have been accepted."""


def passage(turn: Turn, before: Tensor, after: Params, rise: Tensor) -> Passage:
    """Compare each node's loss on a few of its own samples before mixing [S] with that of its model after it [S, ...];
    `rise` [S] is the usual one."""
    now = own_losses(turn, after) - before
    now = now.nan_to_num(torch.inf, torch.inf, torch.inf)
    most = (TIMES * rise).clamp(min=FLOOR)
    usual = rise + (now.clamp(min=0.0).minimum(most) - rise) / MEMORY
    return Passage(~(now <= most), usual)


def own_losses(turn: Turn, models: Params) -> Tensor:
    """[S] float64: of models [S, ...] on a few samples of their nodes."""
    return turn.losses({name: leaf.unsqueeze(1) for name, leaf in models.items()})[:, 0].double()
