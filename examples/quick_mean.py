"""Your own algorithm in one file, without touching the package.

Quick mean: like Epidemic Learning, but in the first `patience` rounds a node keeps half of its own
model, so that it finds its own direction before it follows the others. Run it with

    facade run examples/quick_mean.toml
"""

from dataclasses import dataclass

from facade.algorithms.one_model import ModelState, OneModel
from facade.core import tree
from facade.core.messages import Inbox, mean
from facade.core.turn import Turn


@dataclass(frozen=True)
class QuickMean(OneModel):
    """Epidemic Learning with a slow start."""

    patience: int = 5

    def mix(self, turn: Turn, state: ModelState, inbox: Inbox) -> ModelState:
        others = mean(inbox, inbox.pool["model"])
        if turn.round >= self.patience:
            return state._replace(model=others)
        return state._replace(model=tree.map(lambda own, new: (own + new) / 2, state.model, others))
