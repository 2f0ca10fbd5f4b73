"""Who took part: per peer, the rounds in which it was heard, came late, was missed or had gone on, and what was not
used of what it sent."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from facade.peers.protocol.refusals import Reason


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
    """Messages that were turned away at the door, by reason."""
    dropped: dict[str, int] = field(default_factory=dict)
    """Messages that were heard and that the guard did not use, by the part dropped; "all": the whole message."""
    unused: int = 0
    """Messages of which the guard dropped something."""
    unused_at_end: int = 0
    """1 if that of the final exchange was turned away, or the guard dropped something of it."""
    gate_closed: int = 0
    """How often the last gate closed after it had been heard."""
    bytes: int = 0
    retries: int = 0


class Ledger:
    """Entries by the members' ids. Part of every checkpoint, so that a restart forgets nothing."""

    def __init__(self, written: dict[str, Any] | None = None) -> None:
        self.entries = {id: PeerRecord(**entry) for id, entry in (written or {}).items()}

    def of(self, id: str) -> PeerRecord:
        """A peer's entry."""
        return self.entries.setdefault(id, PeerRecord())

    def refuse(self, id: str, reason: Reason, final: bool = False) -> None:
        """A message of a peer was turned away; `final`: that of the final exchange."""
        entry = self.of(id)
        entry.refused = dict(Counter(entry.refused) + Counter([reason.word]))
        entry.unused_at_end |= final and reason.tells_of_message

    def drop(self, id: str, parts: list[str], final: bool) -> None:
        """The guard dropped parts of a peer's message."""
        entry = self.of(id)
        entry.dropped = dict(Counter(entry.dropped) + Counter(parts))
        entry.unused += 1
        entry.unused_at_end |= final

    def plain(self) -> dict[str, Any]:
        """As JSON knows it."""
        return {id: asdict(entry) for id, entry in sorted(self.entries.items())}
