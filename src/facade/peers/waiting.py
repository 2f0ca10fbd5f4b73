"""How long a node waits for its peers: a named policy of the membership list."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol

from facade.peers.membership import Limits


@dataclass
class Wait:
    """One round's waiting, as it stands; times are monotonic seconds."""

    started: float
    outstanding: set[int]
    wanted: int
    final: bool = False
    """The exchange after the last round."""
    half: float | None = None
    """When half of the wanted messages had come."""

    def came(self, peer: int, now: float) -> None:
        """A message has arrived, or will not."""
        self.outstanding.discard(peer)
        if self.half is None and self.wanted - len(self.outstanding) >= math.ceil(self.wanted / 2):
            self.half = now


class Policy(Protocol):
    """When to stop waiting, given what has come."""

    def until(self, wait: Wait) -> float:
        """The moment to go on without those who are outstanding."""

    def learn(self, heard: set[int], missed: set[int], seconds: float) -> None:
        """A round's waiting is over."""

    def patience(self, peer: int) -> float:
        """Seconds to wait, at the end, for a peer that cannot be reached."""


@dataclass
class Patient:
    """Wait for everybody until the deadline."""

    limits: Limits

    def until(self, wait: Wait) -> float:
        return wait.started + self.limits.deadline

    def learn(self, heard: set[int], missed: set[int], seconds: float) -> None:
        pass

    def patience(self, peer: int) -> float:
        return self.limits.linger


@dataclass
class Brisk:
    """Wait a few times as long as usual; a short grace when half have come; hardly at all for those
    who missed twice, until they are heard again. Suspicion stays here: it changes no topology."""

    limits: Limits
    usual: float | None = None
    """Moving average of the seconds that rounds took to gather."""
    misses: dict[int, int] = field(default_factory=dict)
    opening: bool = False
    """Whether the run's first round is still to come: sites start minutes apart, so that one is patient."""

    def until(self, wait: Wait) -> float:
        limits = self.limits
        if self.opening:
            return wait.started + limits.deadline
        end = wait.started + min(max(3 * (self.usual or 0.0), limits.floor), limits.deadline)
        if wait.half is not None and not wait.final:
            end = min(end, wait.half + limits.grace)
        if all(self.misses.get(peer, 0) >= 2 for peer in wait.outstanding):
            end = min(end, wait.started + limits.grace)
        return end

    def learn(self, heard: set[int], missed: set[int], seconds: float) -> None:
        if self.opening:  # how long the others took to start says nothing about rounds
            self.opening, seconds = False, min(seconds, self.limits.floor / 3)
        self.usual = seconds if self.usual is None else 0.8 * self.usual + 0.2 * seconds
        self.misses = {peer: count for peer, count in self.misses.items() if peer not in heard}
        for peer in missed:
            self.misses[peer] = self.misses.get(peer, 0) + 1

    def patience(self, peer: int) -> float:
        return self.limits.grace if self.misses.get(peer, 0) >= 2 else self.limits.linger


def policy(name: str, limits: Limits, opening: bool) -> Policy:
    """The policy of a name; `opening` says that the run begins."""
    return Brisk(limits, opening=opening) if name == "brisk" else Patient(limits)
