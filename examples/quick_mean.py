"""Your own algorithm in one file, without touching the package.

Quick mean: like Epidemic Learning, but in the first `patience` rounds a node keeps half of its own
model, so that it finds its own direction before it follows the others. Run it with

    facade run examples/quick_mean.toml
"""

from dataclasses import dataclass

from facade.algorithms.base import OneModel, Plain
from facade.core import tree
from facade.core.engine import Turn
from facade.core.messages import Inbox, mean


@dataclass(frozen=True)
class QuickMean(OneModel):
    """Epidemic Learning with a slow start."""

    patience: int = 5

    def mix(self, turn: Turn, state: Plain, inbox: Inbox) -> Plain:
        others = mean(inbox, inbox.pool["model"])
        if turn.round >= self.patience:
            return state._replace(model=others)
        return state._replace(model=tree.map(lambda own, new: (own + new) / 2, state.model, others))
