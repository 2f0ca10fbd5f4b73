"""Simulated trouble: which messages are lost, and which nodes are offline."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from facade.core import seeds
from facade.core.types import Ids


@dataclass(frozen=True)
class Network:
    """Each message is lost, each node offline, with these probabilities."""

    loss: float = 0.0
    offline: float = 0.0

    def online(self, seed: int, round: int, nodes: Ids) -> NDArray[np.bool_]:
        """Which nodes take part in a round; addressed by (seed, round, node)."""
        if not self.offline:
            return np.ones(len(nodes), np.bool_)
        return seeds.uniform(seed, "offline", round, nodes, 1)[:, 0] >= self.offline

    def arrives(self, seed: int, round: int, receiver: Ids, sender: Ids) -> NDArray[np.bool_]:
        """Which of these messages arrive; addressed by (seed, round, sender, receiver)."""
        kept = seeds.pair_uniform(seed, "loss", round, sender, receiver) >= self.loss
        kept &= self.online(seed, round, receiver) & self.online(seed, round, sender)
        return kept
