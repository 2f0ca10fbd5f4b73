"""How long a node waits for its peers: a named policy of the membership list."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol

from facade.peers.membership import Limits


@dataclass
class Wait:
    """One round's waiting, as it stands; times are monotonic seconds, peers are ids: numbers change
    from list to list."""

    started: float
    outstanding: set[str]
    wanted: int
    final: bool = False
    """The exchange after the last round."""
    half: float | None = None
    """When half of the wanted messages had come."""

    def __post_init__(self) -> None:
        self.latest = self.started
        """When the last message came; until one has, when the waiting began."""

    def came(self, peer: str, now: float) -> None:
        """A message has arrived, or will not."""
        self.outstanding.discard(peer)
        self.latest = now
        if self.half is None and self.wanted - len(self.outstanding) >= math.ceil(self.wanted / 2):
            self.half = now


class Policy(Protocol):
    """When to stop waiting, given what has come."""

    def until(self, wait: Wait) -> float:
        """The moment to go on without those who are outstanding."""

    def learn(self, heard: set[str], missed: set[str], seconds: float) -> None:
        """A round's waiting is over; what came had come after so many seconds."""

    def trained(self, seconds: float) -> None:
        """This node's own message was ready so many seconds after its round had begun."""

    def patience(self, peer: str) -> float:
        """Seconds to wait, at the end, for a peer that cannot be reached."""


@dataclass
class Patient:
    """Wait for everybody until the deadline."""

    limits: Limits

    def until(self, wait: Wait) -> float:
        return wait.started + self.limits.deadline

    def learn(self, heard: set[str], missed: set[str], seconds: float) -> None:
        pass

    def trained(self, seconds: float) -> None:
        pass

    def patience(self, peer: str) -> float:
        return self.limits.linger


@dataclass
class Brisk:
    """Wait a few times as long as usual, or as this node's own training takes; a short grace when half have
    come; no more than that for those who missed twice, until they are heard again. Suspicion stays here: it
    changes no topology."""

    limits: Limits
    usual: float = 0.0
    """Moving average of the seconds in which a round's messages came; those who were waited for in vain
    are not in it, or every miss would make the next wait longer."""
    pace: float = 0.0
    """Moving average of the seconds that this node's own training takes. Where rounds take minutes, sites that
    are as fast as each other are apart by many seconds."""
    misses: dict[str, int] = field(default_factory=dict)

    @property
    def grace(self) -> float:
        """Seconds for the rest when half have come, and for suspects."""
        return max(self.limits.grace, self.pace / 4)

    def until(self, wait: Wait) -> float:
        limits = self.limits
        end = wait.started + min(max(3 * max(self.usual, self.pace), limits.floor), limits.deadline)
        if wait.half is not None and not wait.final:
            end = min(end, wait.half + self.grace)
        if all(self.misses.get(peer, 0) >= 2 for peer in wait.outstanding):
            end = min(end, wait.started + self.grace)
        return end

    def learn(self, heard: set[str], missed: set[str], seconds: float) -> None:
        if heard:
            self.usual = _averaged(self.usual, seconds)
        self.misses = {peer: count for peer, count in self.misses.items() if peer not in heard}
        for peer in missed:
            self.misses[peer] = self.misses.get(peer, 0) + 1

    def trained(self, seconds: float) -> None:
        self.pace = _averaged(self.pace, seconds)

    def patience(self, peer: str) -> float:
        return self.limits.grace if self.misses.get(peer, 0) >= 2 else self.limits.linger


def _averaged(average: float, new: float) -> float:
    """A moving average with one value more; 0 stands for none yet."""
    return 0.8 * average + 0.2 * new if average else new


def policy(name: str, limits: Limits) -> Policy:
    """The policy of a name."""
    return Brisk(limits) if name == "brisk" else Patient(limits)
