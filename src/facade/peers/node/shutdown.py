"""The end of a run among peers: a node that has finished stays until nobody needs it any more; one that
is asked to go leaves at once."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from facade.errors import StoppedError
from facade.peers.node.ask_members import Answer, ask_each, others
from facade.peers.protocol.headers import Kind, Reply, Status
from facade.peers.protocol.refusals import RefusedError
from facade.peers.trust.membership import Member
from facade.runs.stop_signals import StopSignals

if TYPE_CHECKING:
    from facade.peers.node.node import Node

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


def part(node: Node) -> None:
    """Tell every peer that this node needs nothing more, and serve until all have said the same.

    A peer that answers is waited for as long as it goes on: at most for the deadline in a round. One that cannot
    be reached may be starting again and need this node's messages: the policy says how long it is waited for;
    not for long if it once said that it needs nothing more.
    """
    gate, began = node.gate, time.monotonic()
    staying = {member.id: _Staying(member, began, began) for member in others(node)}
    told = False
    while staying:
        asked = ask_each(node, [peer.member for peer in staying.values()], Kind.FAREWELL, gate.last_round)
        now = time.monotonic()
        for id, answer in asked.items():
            if isinstance(answer, Reply):
                staying[id].note(answer, gate.last_round, now)
                if answer.status is Status.FINISHED:
                    gate.take_leave(id)
        staying = {id: peer for id, peer in staying.items() if _is_waited_for(node, id, peer, now)}
        with gate.said:
            if staying and not gate.settled & staying.keys():
                gate.said.wait(_PAUSE)
            staying = {id: peer for id, peer in staying.items() if id not in gate.settled}
        if staying and not told:
            node.journal.write("staying", peers=sorted(staying))
            told = True
    node.journal.write("left")


def _is_waited_for(node: Node, id: str, peer: _Staying, now: float) -> bool:
    """Whether a peer may still need this node."""
    gate, limits, patience = node.gate, node.membership.limits, node.policy.patience(id)
    if id in gate.parted:
        patience = min(patience, _FAREWELL_SECONDS)
    return id not in gate.settled and now - peer.reached <= patience and now - peer.moved <= limits.deadline


def step_aside(node: Node) -> None:
    """The end for a member that was removed: serve its last messages until the others have begun the
    round in which it is no member any more, from when on they refuse its calls; at most for the deadline."""
    last, began = node.gate.round, time.monotonic()
    staying = {member.id: _Staying(member, began, began) for member in others(node)}
    while staying and time.monotonic() - began <= node.membership.limits.deadline:
        asked = ask_each(node, [peer.member for peer in staying.values()], Kind.PROBE, last)
        now = time.monotonic()
        for id, answer in asked.items():
            if isinstance(answer, Reply):
                staying[id].reached = now
            if _has_gone_on(answer, last) or now - staying[id].reached > node.membership.limits.linger:
                staying.pop(id)
        with node.gate.said:
            if staying:
                node.gate.said.wait(_PAUSE)


def _has_gone_on(answer: Answer, last: int) -> bool:
    """Whether a peer needs no message of a round any more."""
    if isinstance(answer, Reply):
        return answer.round > last or answer.status is not Status.NOT_YET
    return isinstance(answer, RefusedError) or answer.denied
