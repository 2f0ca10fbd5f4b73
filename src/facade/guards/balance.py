"""BALANCE: accept what is near one's own, within a radius that shrinks over rounds.

Fang et al., "Byzantine-Robust Decentralized Federated Learning", CCS 2024.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from facade.guards.guard import Guard, PartHeard, Verdict, norms, replaced


@dataclass(frozen=True)
class Balance(Guard):
    """Drop what is farther from one's own than a share of its norm, which shrinks over rounds."""

    gamma: float = 0.3
    """That share in the first round."""
    kappa: float = 1.0
    """How much it shrinks: by exp(-kappa) until the last round."""

    def judge(self, part: PartHeard) -> Verdict:
        radius = self.gamma * math.exp(-self.kappa * part.progress) * norms(part.held)
        return replaced(part, part.others & (part.distances() > radius))
