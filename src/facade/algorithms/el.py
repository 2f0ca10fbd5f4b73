"""Epidemic Learning: average with random peers, new ones every round.

de Vos et al., "Epidemic Learning: Boosting Decentralized Learning with Randomized Communication", NeurIPS 2023.
"""

from __future__ import annotations

from dataclasses import dataclass

from facade.algorithms.one_model import ModelState, OneModel
from facade.core.messages import Inbox, mean
from facade.core.turn import Turn


@dataclass(frozen=True)
class EL(OneModel):
    """Epidemic Learning: the mean of self and the peers heard on a fresh random graph."""

    def mix(self, turn: Turn, state: ModelState, inbox: Inbox) -> ModelState:
        return state._replace(model=mean(inbox, inbox.pool["model"]))
