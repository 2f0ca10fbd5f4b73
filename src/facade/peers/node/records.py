"""What a node writes down and counts as it goes: its log, its metrics, and how it met every peer."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from facade.peers.node.journal import Journal, Metrics
from facade.peers.node.ledger import Ledger
from facade.peers.node.progress import Progress


@dataclass(frozen=True)
class Records:
    """For operators and reports; nothing that a node does depends on them."""

    journal: Journal
    metrics: Metrics
    ledger: Ledger

    @functools.cached_property
    def progress(self) -> Progress:
        """How far this node is, and how well it does."""
        return Progress(self.metrics)
