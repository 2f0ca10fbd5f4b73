"""One question to many peers at once: those who are dead must not keep the others' answers waiting."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from facade.peers.protocol.headers import Kind, Reply, Request
from facade.peers.protocol.refusals import RefusedError
from facade.peers.protocol.rpc import UnreachableError
from facade.peers.trust.membership import Member

if TYPE_CHECKING:
    from facade.peers.node.node import Node

AT_ONCE = 16
_CALL_SECONDS = 2.0

Answer = Reply | UnreachableError | RefusedError
"""What a peer replied, be it a refusal, or why there is no reply."""


def others(node: Node) -> list[Member]:
    """The members of the list in force but this node."""
    return [member for member in node.membership.members if member.id != node.site.settings.id]


def ask_each(node: Node, members: Iterable[Member], kind: Kind, round: int) -> dict[str, Answer]:
    """How members answer a question about a round, by id."""
    membership = node.membership
    request = Request(kind, membership.digest, membership.number(node.site.settings.id), round)

    def ask(member: Member) -> Answer:
        try:
            return node.links.to(member).call(request, _CALL_SECONDS)
        except (UnreachableError, RefusedError) as error:
            return error

    pool = ThreadPoolExecutor(AT_ONCE, "facade-ask")
    try:
        asked = {member.id: pool.submit(ask, member) for member in members}
        return {id: answer.result() for id, answer in asked.items()}
    finally:
        pool.shutdown(cancel_futures=True)  # a node that is told to leave asks nobody else
