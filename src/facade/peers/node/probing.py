"""Small calls in the background: are you there? They show that a member has gone, and that it is back."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass

from facade.peers.node.member_calls import MemberCalls
from facade.peers.node.presence import Presence
from facade.peers.protocol.headers import Kind, Reply, Request, Status
from facade.peers.protocol.refusals import Reason, RefusedError
from facade.peers.protocol.transport import PeerLink, PeerLinks, UnreachableError
from facade.peers.trust.membership import Member

_PAUSE = 0.25
_SILENT_CALL_SECONDS = 2.0
"""A call to one that is silent is given up after this, or calls to it would pile up where rounds are short."""


@dataclass(frozen=True)
class NotedLink:
    """The way to a peer, with a note of whether it answers."""

    link: PeerLink
    id: str
    presence: Presence

    def call(self, request: Request, seconds: float) -> Reply:
        """One question, one answer, as `PeerLink` has it."""
        began, probe = self.presence.now(), request.kind is Kind.PROBE
        if self.presence.is_silent(self.id):
            seconds = min(seconds, _SILENT_CALL_SECONDS)
        try:
            reply = self.link.call(request, seconds)
        except UnreachableError as error:
            if error.denied:  # it is there: that this site is no member to it is found out by who pulls from it
                self.presence.note_answer(self.id)
            elif probe:
                self.presence.note_silence(self.id, began)
            raise
        except RefusedError:
            if probe:
                self.presence.note_silence(self.id, began)
            raise
        if reply.status is not Status.REFUSED or reply.reason is Reason.BUSY:
            self.presence.note_answer(self.id, reply.status is Status.FINISHED)
        elif probe:  # it follows another list, say: nothing that it has can be used
            self.presence.note_silence(self.id, began)
        return reply


@dataclass(frozen=True)
class NotedLinks:
    """The ways to all peers, with notes of who answers."""

    links: PeerLinks
    presence: Presence

    def to(self, peer: Member) -> NotedLink:
        """The link to a member of a list."""
        return NotedLink(self.links.to(peer), peer.id, self.presence)

    def close(self) -> None:
        """Hang up on everybody."""
        self.links.close()


@dataclass(frozen=True)
class Probing:
    """Probes members who have not answered for a while."""

    presence: Presence
    calls: Callable[[], MemberCalls]
    """To the members of the list in force."""
    round: Callable[[], int]
    """That this site is in."""
    wanted: Callable[[], Set[str]]
    """The ids of those whose presence matters."""

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Inside the with-block, members are probed by threads of their own."""
        stop = threading.Event()
        thread = threading.Thread(target=self._run, args=(stop,), name="facade-probing", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()

    def _run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            calls, wanted = self.calls(), self.wanted()
            others = {member.id: member for member in calls.others if member.id in wanted}
            for id in self.presence.take_due(others):
                # Each in a thread of its own: one that hangs must not keep the others from being probed.
                thread = threading.Thread(target=self._probe, args=(calls, others[id]), name=f"facade-probe-{id}")
                thread.daemon = True
                thread.start()
            self.presence.wait(_PAUSE)

    def _probe(self, calls: MemberCalls, member: Member) -> None:
        calls.ask(member, Kind.PROBE, max(self.round(), calls.membership.first_round))
