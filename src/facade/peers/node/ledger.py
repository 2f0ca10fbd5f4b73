"""Who took part: per peer, the rounds in which it was heard, came late, was missed or had gone on."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class PeerRecord:
    """One peer, as this node met it."""

    heard: int = 0
    late: int = 0
    """It answered, but its message was not ready in time."""
    missed: int = 0
    """It could not be reached in time."""
    gone: int = 0
    """It no longer kept the message: this node was behind."""
    refused: dict[str, int] = field(default_factory=dict)
    """Messages that were not used, by reason."""
    bytes: int = 0
    retries: int = 0


class Ledger:
    """Entries by the members' ids. Part of every checkpoint, so that a restart forgets nothing."""

    def __init__(self, written: dict[str, Any] | None = None) -> None:
        self.entries = {id: PeerRecord(**entry) for id, entry in (written or {}).items()}

    def of(self, id: str) -> PeerRecord:
        """A peer's entry."""
        return self.entries.setdefault(id, PeerRecord())

    def refuse(self, id: str, reason: str) -> None:
        """A message of a peer was not used."""
        entry = self.of(id)
        entry.refused = dict(Counter(entry.refused) + Counter([reason]))

    def plain(self) -> dict[str, Any]:
        """As JSON knows it."""
        return {id: asdict(entry) for id, entry in sorted(self.entries.items())}
