"""The end of a run among peers: a node that has finished stays until nobody needs it any more; one that
is asked to go leaves at once."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from facade.errors import StoppedError
from facade.peers.node.journal import Journal
from facade.peers.node.member_calls import Answer, MemberCalls
from facade.peers.node.waiting import Policy
from facade.peers.protocol.gate import Gate
from facade.peers.protocol.headers import Kind, Reply, Status
from facade.peers.protocol.refusals import RefusedError
from facade.peers.trust.membership import Limits, Member
from facade.runs.stop_signals import StopSignals

_PAUSE = 0.2
_FAREWELL_SECONDS = 10.0
"""How long a peer that needs nothing more is told, without an answer, that this node does not either."""


class LeftError(StoppedError):
    """Somebody asked the node to leave; it can come back any time."""

    def __init__(self, message: str, signal: int) -> None:
        super().__init__(message, signal)
        self.exit_code = 0


@contextlib.contextmanager
def leaving_on_signals() -> Iterator[None]:
    """Inside the with-block, SIGTERM and SIGINT raise LeftError at once: whatever is on disk is whole
    at any moment, and a round that was begun is played again."""

    def leave(number: int) -> None:
        raise LeftError("left in good order; to come back: facade node up", number)

    with StopSignals().listening(leave):
        yield


def end_process(left: LeftError) -> NoReturn:
    """End this process, whose node is closed. Python would first wait for the training under way, which may take
    minutes and is played again anyway."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(left.exit_code)


@dataclass
class _Staying:
    """A peer that may still need this node; times are monotonic seconds."""

    member: Member
    reached: float
    """When it last answered."""
    moved: float
    """When it was last seen in a round that it had not been seen in."""
    round: int = -1

    def note(self, reply: Reply, last_round: int, now: float) -> None:
        """It has answered. No round is beyond the last one, whatever it says, so it cannot go on for ever."""
        self.reached = now
        if min(reply.round, last_round) > self.round:
            self.round, self.moved = min(reply.round, last_round), now


@dataclass(frozen=True)
class Shutdown:
    """A site after its last round."""

    calls: MemberCalls
    gate: Gate
    journal: Journal
    policy: Policy

    def say_farewell(self) -> None:
        """Tell every peer that this node needs nothing more, and serve until all have said the same.

        A peer that answers is waited for as long as it goes on: at most for the deadline in a round. One that cannot
        be reached may be starting again and need this node's messages: the policy says how long it is waited for;
        not for long if it once said that it needs nothing more.
        """
        gate, staying, logged = self.gate, self._all_others(), False
        while staying:
            answers = self.calls.ask_each(_members(staying), Kind.FAREWELL, gate.last_round)
            now = time.monotonic()
            for id, answer in answers.items():
                if isinstance(answer, Reply):
                    staying[id].note(answer, gate.last_round, now)
                    if answer.status is Status.FINISHED:
                        gate.note_farewell(id)
            staying = {id: peer for id, peer in staying.items() if self._is_waited_for(id, peer, now)}
            if staying:
                gate.await_farewell(_PAUSE, unless_settled=staying.keys())
            staying = {id: peer for id, peer in staying.items() if id not in gate.settled}
            if staying and not logged:
                self.journal.write("staying", peers=sorted(staying))
                logged = True
        self.journal.write("left")

    def leave_as_removed(self) -> None:
        """The end for a member that was removed: serve its last messages until the others have begun the
        round in which it is no member any more, from when on they refuse its calls; at most for the deadline."""
        limits, last, began, staying = self._limits, self.gate.round, time.monotonic(), self._all_others()
        while staying and time.monotonic() - began <= limits.deadline:
            answers = self.calls.ask_each(_members(staying), Kind.PROBE, last)
            now = time.monotonic()
            for id, answer in answers.items():
                if isinstance(answer, Reply):
                    staying[id].reached = now
                if _has_gone_on(answer, last) or now - staying[id].reached > limits.linger:
                    staying.pop(id)
            if staying:
                self.gate.await_farewell(_PAUSE)

    @property
    def _limits(self) -> Limits:
        return self.calls.membership.limits

    def _all_others(self) -> dict[str, _Staying]:
        now = time.monotonic()
        return {member.id: _Staying(member, now, now) for member in self.calls.others}

    def _is_waited_for(self, id: str, peer: _Staying, now: float) -> bool:
        """Whether a peer may still need this node."""
        patience = self.policy.patience(id)
        if id in self.gate.farewells:
            patience = min(patience, _FAREWELL_SECONDS)
        in_time = now - peer.reached <= patience and now - peer.moved <= self._limits.deadline
        return in_time and id not in self.gate.settled


def _members(staying: dict[str, _Staying]) -> list[Member]:
    return [peer.member for peer in staying.values()]


def _has_gone_on(answer: Answer, last: int) -> bool:
    """Whether a peer needs no message of a round any more."""
    if isinstance(answer, Reply):
        return answer.round > last or answer.status is not Status.NOT_YET
    return isinstance(answer, RefusedError) or answer.denied
