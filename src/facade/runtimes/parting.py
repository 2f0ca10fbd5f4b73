"""The end of a run among peers: a node that has finished stays until nobody needs it any more; one that
is asked to go leaves at once."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

from facade.bell import Bell
from facade.errors import StoppedError
from facade.peers.headers import Kind, Request, Status
from facade.peers.membership import Member
from facade.peers.refusals import RefusedError
from facade.runtimes.rpc import UnreachableError

if TYPE_CHECKING:
    from facade.runtimes.peer import Node

_CALL_SECONDS = 2.0
_PAUSE = 0.2


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

    with Bell().listening(leave):
        yield


def end_process(left: LeftError) -> NoReturn:
    """End this process, whose node is closed. Python would first wait for the training under way, which may take
    minutes and is played again anyway."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(left.exit_code)


def part(node: Node) -> None:
    """Tell every peer that this node needs nothing more, and serve until all have said the same.

    A peer that is alive is waited for until the deadline. One that cannot be reached may be starting
    again and need this node's messages, or may have left: it is waited for only a while.
    """
    gate, limits = node.gate, node.membership.limits
    began = time.monotonic()
    staying = {m.id: m for m in node.membership.members if m.id != node.site.settings.id}
    reached = dict.fromkeys(staying, began)
    while staying:
        now = time.monotonic()
        for id, member in list(staying.items()):
            status = _say_farewell(node, member)
            if status is not None:
                reached[id] = now
            patience = node.policy.patience(id)
            if status is Status.FINISHED or now - reached[id] > patience or now - began > limits.deadline:
                staying.pop(id)
        with gate.said:
            done = [id for id in staying if id in gate.settled]
            if not done and staying:
                gate.said.wait(_PAUSE)
        for id in done:
            staying.pop(id)
    node.journal.write("left")


def step_aside(node: Node) -> None:
    """The end for a member that was removed: serve its last messages until the others have begun the
    round in which it is no member any more; from then on they refuse its calls."""
    membership = node.membership
    number = membership.number(node.site.settings.id)
    last = node.gate.round
    staying = {m.id: m for m in membership.members if m.id != node.site.settings.id}
    reached = dict.fromkeys(staying, time.monotonic())
    while staying:
        now = time.monotonic()
        for id, member in list(staying.items()):
            try:
                reply = node.links.to(member).call(Request(Kind.PROBE, membership.digest, number, last), _CALL_SECONDS)
                reached[id] = now
                gone = reply.round > last or reply.status is not Status.NOT_YET
            except UnreachableError as error:
                gone = error.denied or now - reached[id] > membership.limits.linger
            except RefusedError:
                gone = True
            if gone:
                staying.pop(id)
        with node.gate.said:
            if staying:
                node.gate.said.wait(_PAUSE)


def _say_farewell(node: Node, member: Member) -> Status | None:
    """How a peer answered; None if it did not."""
    membership = node.membership
    number = membership.number(node.site.settings.id)
    request = Request(Kind.FAREWELL, membership.digest, number, node.gate.last_round)
    try:
        return node.links.to(member).call(request, _CALL_SECONDS).status
    except (UnreachableError, RefusedError):
        return None
