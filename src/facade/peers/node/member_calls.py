"""One question to many members at once: those who are dead must not keep the others' answers waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from facade.peers.protocol.headers import Kind, Reply, Request
from facade.peers.protocol.refusals import RefusedError
from facade.peers.protocol.transport import PeerLinks, UnreachableError
from facade.peers.trust.membership import Member, Membership

AT_ONCE = 16
_CALL_SECONDS = 2.0

Answer = Reply | UnreachableError | RefusedError
"""What a peer replied, be it a refusal, or why there is no reply."""


@dataclass(frozen=True)
class MemberCalls:
    """Calls of one member of a list to the others."""

    links: PeerLinks
    membership: Membership
    own_id: str
    ignores: Callable[[str], bool] = lambda peer: False
    """Whether a member is ignored here."""

    @property
    def others(self) -> list[Member]:
        """All members but this one, and those that it ignores."""
        members = self.membership.members
        return [member for member in members if member.id != self.own_id and not self.ignores(member.id)]

    def ask(self, member: Member, kind: Kind, round: int) -> Answer:
        """How one member answers a question about a round."""
        request = Request(kind, self.membership.digest, self.membership.number(self.own_id), round)
        try:
            return self.links.to(member).call(request, _CALL_SECONDS)
        except (UnreachableError, RefusedError) as error:
            return error

    def ask_each(self, members: Iterable[Member], kind: Kind, round: int) -> dict[str, Answer]:
        """How members answer a question about a round, by id."""
        pool = ThreadPoolExecutor(AT_ONCE, "facade-ask")
        try:
            answers = {member.id: pool.submit(self.ask, member, kind, round) for member in members}
            return {id: answer.result() for id, answer in answers.items()}
        finally:
            pool.shutdown(cancel_futures=True)  # a node that is told to leave asks nobody else
