"""How long a node waits for its peers: a named policy of the membership list."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field
from typing import Protocol

from facade.peers.node.presence import Presence
from facade.peers.trust.membership import Limits

SUSPECT = 2
"""Who has missed so often in a row is waited for no longer than the grace."""
HOPELESS = 10
"""Who has missed so often in a row, and is silent, is not waited for at all."""


@dataclass
class Wait:
    """One round's waiting, as it stands; times are monotonic seconds, peers are ids: numbers change
    from list to list."""

    started: float
    outstanding: set[str]
    final: bool = False
    """The exchange after the last round."""
    heard: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    """Whose messages will not come: they are refused, or no longer kept."""
    answered: set[str] = field(default_factory=set)
    """Who has answered at all."""
    sending: set[str] = field(default_factory=set)
    """Of whose messages a part has come, if not all."""
    half: float | None = None
    """When half of the messages that can still come had come. A refusal only makes them fewer: one that
    comes at once must not start the clock for the others."""

    def __post_init__(self) -> None:
        self.latest = self.started
        """When the last message came; until one has, when the waiting began."""

    def came(self, peer: str, now: float) -> None:
        """A message has arrived."""
        self.heard.add(peer)
        self.latest = now
        self._settle(peer, now)

    def lose(self, peer: str, now: float) -> None:
        """A message will not arrive."""
        self.lost.add(peer)
        self._settle(peer, now)

    def begin_again(self, now: float) -> None:
        """Those who are outstanding have all their time again."""
        self.started = self.latest = now
        self.half = None
        self._note_half(now)

    def _settle(self, peer: str, now: float) -> None:
        self.outstanding.discard(peer)
        self._note_half(now)

    def _note_half(self, now: float) -> None:
        if self.half is None and self.heard and len(self.heard) >= len(self.outstanding):
            self.half = now


class Policy(Protocol):
    """When to stop waiting, given what has come."""

    def until(self, wait: Wait) -> float:
        """The moment to go on without those who are outstanding."""

    def learn(self, wait: Wait) -> None:
        """A round's waiting is over."""

    def trained(self, seconds: float) -> None:
        """This node's own message was ready so many seconds after its round had begun."""

    def patience(self, peer: str) -> float:
        """Seconds to wait, at the end, for a peer that cannot be reached."""

    @property
    def missing(self) -> Set[str]:
        """Those who missed the last time, whose return matters."""


@dataclass
class Patient:
    """Wait for everybody until the deadline."""

    limits: Limits

    def until(self, wait: Wait) -> float:
        return wait.started + self.limits.deadline

    def learn(self, wait: Wait) -> None:
        pass

    def trained(self, seconds: float) -> None:
        pass

    def patience(self, peer: str) -> float:
        return self.limits.linger

    @property
    def missing(self) -> Set[str]:
        return frozenset()


@dataclass
class Brisk:
    """Wait a few times as long as usual, or as this node's own training takes; a short grace when half have
    come; no more than that for those who missed twice, until they are heard again, and less with every miss for
    those of them who are silent: they cost nothing after ten, until they answer. Then they are waited for once
    without that grace, for they are up to two trainings behind. One whose message is on its way has not missed: its
    line is slow, and where such lines are usual the wait grows. Suspicion stays here: it changes no topology."""

    limits: Limits
    presence: Presence = field(default_factory=Presence)
    """Who is silent; probes are another's work."""
    usual: float = 0.0
    """Moving average of the seconds in which a round's messages came. Those who were waited for in vain are not
    in it, or every miss would make the next wait longer; but it is raised where a wait was too short for most."""
    pace: float = 0.0
    """Moving average of the seconds that this node's own training takes. Where rounds take minutes, sites that
    are as fast as each other are apart by many seconds."""
    misses: dict[str, int] = field(default_factory=dict)
    """Waits in vain since a peer was last heard, or has come back."""
    _returns: dict[str, int] = field(default_factory=dict)
    """How often each peer has come back, when last looked at."""
    _catching_up: set[str] = field(default_factory=set)
    """Those who have come back after ten misses, and have not been waited for since. Fewer misses do not count, or one
    that comes and goes could make the others wait as it likes."""

    @property
    def grace(self) -> float:
        """Seconds for the rest when half have come, and for suspects."""
        return max(self.limits.grace, self.pace / 4)

    @property
    def longest(self) -> float:
        """Seconds that a round's messages are waited for."""
        return min(max(3 * max(self.usual, self.pace), self.limits.floor), self.limits.deadline)

    def until(self, wait: Wait) -> float:
        self._note_returned(wait.outstanding)
        end = wait.started + (self._longest_at_the_end(wait) if wait.final else self.longest)
        if wait.half is not None and not wait.final and not self._answering(self._catching_up & wait.outstanding):
            end = min(end, wait.half + self.grace)
        if all(self.misses.get(peer, 0) >= SUSPECT for peer in wait.outstanding):
            end = min(end, wait.started + max(map(self._granted, wait.outstanding), default=0.0))
        return end

    def _note_returned(self, peers: Set[str]) -> None:
        """Forget the misses of those who were silent and have come back."""
        returns = {peer: self.presence.returns(peer) for peer in peers}
        back = {peer for peer, count in returns.items() if count != self._returns.get(peer, 0)}
        self._catching_up |= {peer for peer in back if self.misses.get(peer, 0) >= HOPELESS}
        self.misses = {peer: count for peer, count in self.misses.items() if peer not in back}
        self._returns |= returns

    def _answering(self, peers: Set[str]) -> set[str]:
        return {peer for peer in peers if not self.presence.is_silent(peer)}

    def _granted(self, suspect: str) -> float:
        """Seconds for one who has missed twice: the grace if it answers, else half as much after every miss."""
        if not self.presence.is_silent(suspect):
            return self.grace
        misses = self.misses[suspect]
        return 0.0 if misses >= HOPELESS else self.grace / 2 ** (misses - SUSPECT)

    def _longest_at_the_end(self, wait: Wait) -> float:
        """The final exchange brings a message of everybody, which says nothing of how long a round's few take:
        who answers has until the deadline, who does not is waited for as one that cannot be reached."""
        if wait.outstanding & wait.answered:
            return self.limits.deadline
        return min(max(self.longest, self.limits.linger), self.limits.deadline)

    def learn(self, wait: Wait) -> None:
        if self._was_too_short(wait):
            self.usual = min(2 * self.longest, self.limits.deadline) / 3
        elif wait.heard:
            self.usual = _averaged(self.usual, wait.latest - wait.started)
        missed = wait.lost | (wait.outstanding - wait.sending)
        kept = {peer: count for peer, count in self.misses.items() if peer not in wait.heard}
        self._catching_up -= wait.heard | wait.lost | self._answering(wait.outstanding)
        # In one step: another thread asks who is missing.
        self.misses = kept | {peer: kept.get(peer, 0) + 1 for peer in missed}

    def _was_too_short(self, wait: Wait) -> bool:
        """Whether fewer than half came though others were sending, or nobody though somebody answered."""
        if wait.half is None and wait.outstanding & wait.sending:
            return True
        return not wait.heard and bool(wait.outstanding & wait.answered)

    def trained(self, seconds: float) -> None:
        self.pace = _averaged(self.pace, seconds)

    def patience(self, peer: str) -> float:
        return self.limits.grace if self.misses.get(peer, 0) >= SUSPECT else self.limits.linger

    @property
    def missing(self) -> Set[str]:
        return self.misses.keys()


def _averaged(average: float, new: float) -> float:
    """A moving average with one value more; 0 stands for none yet."""
    return 0.8 * average + 0.2 * new if average else new


def policy(name: str, limits: Limits, presence: Presence) -> Policy:
    """The policy of a name."""
    return Brisk(limits, presence) if name == "brisk" else Patient(limits)
