"""Who gets in, and what they are told. Nothing of a call is looked at before its caller is known;
nothing is handed out before the caller's right to it is.
"""

from __future__ import annotations

import contextlib
import datetime
import threading
from collections.abc import Callable, Set
from dataclasses import dataclass, field

from facade.errors import FacadeError
from facade.files.shortage import shortage
from facade.peers.node.journal import Journal, Metrics
from facade.peers.node.outgoing import Outgoing
from facade.peers.node.presence import Presence
from facade.peers.node.recovery import Recovery
from facade.peers.protocol.headers import LONGEST_REQUEST, Kind, Reply, Request, Status
from facade.peers.protocol.refusals import Reason, RefusedError
from facade.peers.trust import identity
from facade.peers.trust.membership import Epochs, Limits

LONGEST_WAIT = 1.0
"""Seconds that a call for the message being made is held at most, so that callers need not ask again and again."""

Entitled = Callable[[int, int], bool]
"""Whether member number `caller` may have the message of a round: (round, caller)."""


@dataclass
class Gate:
    """A node as its peers meet it, in one study."""

    epochs: Epochs
    outgoing: Outgoing
    recovery: Recovery
    """Knows who said farewell, also before this node was started again."""
    entitled: Entitled
    last_round: int
    """The round of the final exchange; there is none beyond."""
    limits: Limits
    journal: Journal
    metrics: Metrics
    round: int = 0
    finished: bool = False
    settled: set[str] = field(default_factory=set)
    """Members that need nothing more from this node, and know that it needs nothing more."""
    ignores: Callable[[str], bool] = lambda peer: False
    """Whether the operator has this site ignore a member."""
    presence: Presence = field(default_factory=Presence)
    """Told of every member that calls."""

    def __post_init__(self) -> None:
        self._farewell = threading.Condition()
        """Notified at every farewell."""

    @property
    def farewells(self) -> Set[str]:
        """Members that need nothing more from this node."""
        return self.recovery.farewells

    def finish(self) -> None:
        """This node has finished its run: who says farewell from now on need not wait for it."""
        with self._farewell:
            self.finished = True
            self.round = self.last_round

    def note_farewell(self, id: str) -> None:
        """A member needs nothing more from this node."""
        with self._farewell:
            if self.recovery.note_farewell(id):
                self.journal.write("parted", peer=id)
            if self.finished:
                self.settled.add(id)
            self._farewell.notify_all()

    def await_farewell(self, seconds: float, unless_settled: Set[str] = frozenset()) -> None:
        """Pause until somebody says farewell, at most so long; not at all if one of these has settled by now."""
        with self._farewell:
            if not self.settled & unless_settled:
                self._farewell.wait(seconds)

    def admit(self, fingerprint: str) -> str:
        """The id of the member that owns a certificate; RefusedError for all others."""
        for membership in self.epochs.current(self.round):
            member = membership.by_fingerprint.get(fingerprint)
            if member is not None:
                self._check_dates(member.certificates, fingerprint)
                if self.ignores(member.id):
                    raise RefusedError(Reason.IGNORED, member.id)
                return member.id
        raise RefusedError(Reason.STRANGER, fingerprint[:16])

    def _check_dates(self, certificates: list[str], fingerprint: str) -> None:
        pem = next(pem for pem in certificates if identity.fingerprint(pem) == fingerprint)
        certificate, now = identity.parsed(pem), datetime.datetime.now(datetime.UTC)
        if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
            raise RefusedError(Reason.EXPIRED)

    def answer(self, id: str, content: bytes) -> Reply:
        """The reply to a member's call."""
        self.presence.note_call(id)
        try:
            if len(content) > LONGEST_REQUEST:
                raise RefusedError(Reason.TOO_LONG, f"{len(content)} bytes")
            return self._answer(id, Request.parse(content))
        except RefusedError as refusal:
            return self.refusal(id, refusal)
        except Exception as error:
            if (lacks := shortage(error)) is None:
                raise
            return self.refusal(id, RefusedError(Reason.BUSY, f"too little: {lacks}"))

    def refusal(self, id: str, refused: RefusedError) -> Reply:
        """The reply to a member's call that is refused."""
        self.refuse(id, refused)
        return Reply(Status.REFUSED, self.round, refused.reason, digest=self.epochs.governing(self.round).digest)

    def refuse(self, id: str, refusal: RefusedError) -> None:
        """Count and log a refusal."""
        self.metrics.rejected.labels(refusal.reason.word).inc()
        self.journal.refused(id, refusal.reason.word, details=refusal.details, side="caller")

    def note_flood(self, address: str, closed: int) -> None:
        """Strangers open more connections than there are places for."""
        with contextlib.suppress(FacadeError):  # letting others in does not depend on the log
            self.journal.write("flood", address=address, closed=closed)

    def _answer(self, id: str, request: Request) -> Reply:
        if request.round > self.last_round:
            raise RefusedError(Reason.NO_SUCH_ROUND, f"round {request.round} of {self.last_round}")
        membership = self.epochs.governing(request.round)
        if request.membership != membership.digest:
            there, here = request.membership.hex()[:16], membership.digest.hex()[:16]
            raise RefusedError(Reason.OTHER_MEMBERSHIP, f"the caller's list is {there}, ours for this round {here}")
        if not membership.has(id):
            raise RefusedError(Reason.STRANGER, f"no member in round {request.round}")
        if request.caller != membership.number(id):
            raise RefusedError(Reason.OTHER_IDENTITY, f"{id} claims to be number {request.caller}")
        if request.kind is Kind.FAREWELL:
            self.note_farewell(id)
        if request.kind is Kind.MEASURE:
            return self._measure(request)
        if request.kind is not Kind.PULL:
            return Reply(Status.FINISHED if self.finished else Status.NOT_YET, self.round)
        return self._pull(request)

    def _measure(self, request: Request) -> Reply:
        """Zeros for a member that measures its connection: never more than a chunk, as any neighbour may pull."""
        if not 0 < request.length <= self.limits.chunk:
            raise RefusedError(Reason.NO_SUCH_CHUNK, f"{request.length} bytes to measure with")
        return Reply(Status.HERE, self.round, total=request.length, chunk=bytes(request.length))

    def _pull(self, request: Request) -> Reply:
        soon = request.round <= self.round + 1
        # Half the grace: a caller that grants no more must know that this site is there before it goes on.
        held = min(LONGEST_WAIT, self.limits.grace / 2)
        published = self.outgoing.get(request.round, held if soon else 0.0)
        if published is None:
            return self._absent(request.round)
        if not self.entitled(request.round, request.caller):
            raise RefusedError(Reason.NOT_ENTITLED, f"number {request.caller} is no neighbour in round {request.round}")
        total = published.total
        if not 0 < request.length <= self.limits.chunk or request.offset >= total:
            raise RefusedError(Reason.NO_SUCH_CHUNK, f"{request.length} bytes from {request.offset} of {total}")
        try:
            chunk = published.chunk(request.offset, request.length)
        except FileNotFoundError:  # it was dropped between the look and the reading
            return self._absent(request.round)
        return Reply(Status.HERE, self.round, total=total, digest=published.digest, chunk=chunk)

    def _absent(self, round: int) -> Reply:
        """What to say of a message that is not published, or no longer."""
        here = self.round
        return Reply(Status.GONE if round < here else Status.NOT_YET, here)
