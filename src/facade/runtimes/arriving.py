"""The beginning for a site that joins a running network: its first round is one that the others reach."""

from __future__ import annotations

from typing import TYPE_CHECKING

from facade.peers.headers import Kind, Request, Status
from facade.peers.membership import Member
from facade.peers.refusals import RefusedError
from facade.runtimes.rpc import UnreachableError

if TYPE_CHECKING:
    from facade.runtimes.peer import Node

_CALL_SECONDS = 2.0
_PAUSE = 0.2


def await_first_round(node: Node) -> None:
    """Wait until another member is in the round from which this site takes part, however long that is:
    who began at once would wait out one deadline after another and play the rounds alone."""
    membership = node.membership
    others = [member for member in membership.members if member.id != node.site.settings.id]
    node.journal.write("waiting", round=membership.first_round, epoch=membership.epoch)
    while not any(_is_there(node, member) for member in others):
        node.lists.look(node.journal)
        with node.gate.said:
            node.gate.said.wait(_PAUSE)


def _is_there(node: Node, member: Member) -> bool:
    membership = node.membership
    number, first = membership.number(node.site.settings.id) or 0, membership.first_round
    try:
        reply = node.links.to(member).call(Request(Kind.PROBE, membership.digest, number, first), _CALL_SECONDS)
    except (UnreachableError, RefusedError):
        return False
    return reply.status is not Status.REFUSED and reply.round >= first
