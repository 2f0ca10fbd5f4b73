"""Epidemic Learning: average with random peers, new ones every round.

de Vos et al., "Epidemic Learning: Boosting Decentralized Learning with Randomized Communication", NeurIPS 2023.
"""

from __future__ import annotations

from dataclasses import dataclass

from facade.algorithms.base import OneModel, Plain
from facade.core.engine import Turn
from facade.core.messages import Inbox, mean


@dataclass(frozen=True)
class EL(OneModel):
    """Epidemic Learning: the mean of self and the peers heard on a fresh random graph."""

    def mix(self, turn: Turn, state: Plain, inbox: Inbox) -> Plain:
        return state._replace(model=mean(inbox, inbox.pool["model"]))
