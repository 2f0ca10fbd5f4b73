"""What a round demands of its peers, and how far its pulls have come."""

from __future__ import annotations

import queue
import statistics
import threading
from dataclasses import dataclass, field
from typing import Any, Protocol

from facade.peers.node.waiting import Policy, Wait
from facade.peers.protocol.headers import Reply
from facade.peers.protocol.incoming import Incoming
from facade.peers.protocol.refusals import Reason, RefusedError
from facade.peers.protocol.wire import MessageForm, Origin
from facade.peers.trust.membership import Membership


class BehindError(Exception):
    """Peers no longer keep the round that this node is in; `round` is where they are."""

    def __init__(self, round: int) -> None:
        super().__init__(f"others are in round {round}")
        self.round = round


class ShutOutError(Exception):
    """None of several members that were asked admits this node any more."""


class Refuse(Protocol):
    """The algorithm's own check: why a message is unusable, or None."""

    def __call__(self, message: Any) -> str | None: ...


@dataclass(frozen=True)
class Demand:
    """What a round needs."""

    round: int
    senders: list[int]
    form: MessageForm
    refuse: Refuse
    last: int
    """The last round that has an exchange."""
    policy: Policy
    """How long to wait."""
    final: bool = False


@dataclass
class Pull:
    """One peer's message, as far as it has come."""

    peer: int
    stop: threading.Event
    incoming: Incoming | None = None
    """What has come; None before the first bytes."""
    announced: tuple[int, bytes] | None = None
    chunk: int = 0
    """Bytes to ask for next."""
    retries: int = 0
    tried: bool = False
    """Whether a call has brought an answer, or none."""
    answered: bool = False
    refused: Reason = Reason.NONE
    """Why the peer refused the last call that it refused."""

    @property
    def come(self) -> int:
        """Bytes that have come."""
        return self.incoming.come if self.incoming else 0

    def add(self, reply: Reply, form: MessageForm, length: int) -> Incoming:
        """Add a chunk to what has come; RefusedError if it does not belong there."""
        if reply.total != form.size:
            raise RefusedError(Reason.WRONG_SIZE, f"{reply.total} bytes were announced, {form.size} are expected")
        if self.announced not in (None, (reply.total, reply.digest)):
            raise RefusedError(Reason.EQUIVOCATION, "the digest changed between two chunks")
        asked = min(length, form.size - self.come)
        if len(reply.chunk) != asked:  # a byte at a time, a peer could keep this node busy for ever
            raise RefusedError(Reason.WRONG_SIZE, f"a chunk of {len(reply.chunk)} bytes, {asked} were asked for")
        self.announced = reply.total, reply.digest
        self.incoming = self.incoming or form.room()
        self.incoming.add(reply.chunk)
        return self.incoming


@dataclass(frozen=True)
class PullEnd:
    """How a pull ended."""

    pull: Pull
    message: Any = None
    refusal: RefusedError | None = None
    behind: int | None = None


@dataclass
class RoundPulls:
    """A round's pulling under way."""

    membership: Membership
    own: int
    demand: Demand
    wait: Wait
    room: threading.Semaphore
    """For calls under way at a time, to peers that answer."""
    by_sender: dict[int, Pull] = field(default_factory=dict)
    """By the sender's number."""
    ends: queue.SimpleQueue[PullEnd] = field(default_factory=queue.SimpleQueue)
    heard: dict[int, Any] = field(default_factory=dict)
    """Messages by the sender's number."""
    behind: list[int] = field(default_factory=list)
    """The rounds of those who no longer keep this one."""
    denied: set[str] = field(default_factory=set)
    """Those who do not admit this node."""

    def id(self, peer: int) -> str:
        """A member's id."""
        return self.membership.members[peer].id

    def origin(self, peer: int) -> Origin:
        """Where a member's message of this round comes from."""
        return Origin(self.membership.digest, peer, self.demand.round)

    def note_progress(self) -> None:
        """Say in the wait how far the pulls are."""
        self.wait.answered = {self.id(peer) for peer, pull in self.by_sender.items() if pull.answered}
        self.wait.sending = {self.id(peer) for peer, pull in self.by_sender.items() if pull.come}

    def all_tried(self) -> bool:
        """Whether everybody outstanding has had the time of a call to answer."""
        return all(pull.tried for peer, pull in self.by_sender.items() if self.id(peer) in self.wait.outstanding)

    def check_not_behind(self) -> None:
        """BehindError if more peers have left the round than offer it, or answer and have not gone on."""
        here = sum(pull.answered for peer, pull in self.by_sender.items() if self.id(peer) in self.wait.outstanding)
        if len(self.behind) > len(self.heard) + here:
            raise BehindError(statistics.median_low(self.behind))
