"""The beginning of a run among peers: sites do not start at the same moment, nor all in the first round."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from facade.peers.headers import Kind, Reply, Request, Status
from facade.peers.membership import Member
from facade.peers.refusals import RefusedError
from facade.runtimes.rpc import UnreachableError

if TYPE_CHECKING:
    from facade.runtimes.peer import Node

_CALL_SECONDS = 2.0
_PAUSE = 0.2


def await_everybody(node: Node) -> None:
    """Wait until every member has answered once, at most for the deadline; not if the others have begun.
    Afterwards nobody is waited for as one who has yet to start: a peer that dies in the first round
    costs no more than in any other."""
    unseen = _others(node)
    ends = time.monotonic() + node.membership.limits.deadline
    while unseen and time.monotonic() < ends:
        replies = [(member, _ask(node, member)) for member in unseen]
        if any(reply is not None and reply.round > node.gate.round for _, reply in replies):
            return
        unseen = [member for member, reply in replies if reply is None]
        if unseen:
            _pause(node)
    if unseen:
        node.journal.write("absent", peers=[member.id for member in unseen])


def await_first_round(node: Node) -> None:
    """For a site that joins later: wait until another member is in the round from which this one takes
    part, however long that is. Who began at once would wait out one deadline after another and play the
    rounds alone."""
    first = node.membership.first_round
    node.journal.write("waiting", round=first, epoch=node.membership.epoch)
    while not any(reply and reply.round >= first for reply in (_ask(node, member) for member in _others(node))):
        _pause(node)


def _others(node: Node) -> list[Member]:
    return [member for member in node.membership.members if member.id != node.site.settings.id]


def _ask(node: Node, member: Member) -> Reply | None:
    """How a peer answers; None if it does not, or by another list."""
    membership = node.membership
    number = membership.number(node.site.settings.id) or 0
    request = Request(Kind.PROBE, membership.digest, number, membership.first_round)
    try:
        reply = node.links.to(member).call(request, _CALL_SECONDS)
    except (UnreachableError, RefusedError):
        return None
    return None if reply.status is Status.REFUSED else reply


def _pause(node: Node) -> None:
    node.lists.look(node.journal)
    with node.gate.said:
        node.gate.said.wait(_PAUSE)
