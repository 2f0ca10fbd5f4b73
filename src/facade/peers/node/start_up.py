"""The beginning of a run among peers: sites do not start at the same moment, nor all in the first round."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from facade.peers.node.journal import Journal
from facade.peers.node.member_calls import MemberCalls
from facade.peers.protocol.gate import Gate
from facade.peers.protocol.headers import Kind, Reply, Status

_PAUSE = 0.2


@dataclass(frozen=True)
class StartUp:
    """A site before its first round."""

    calls: MemberCalls
    gate: Gate
    journal: Journal
    look_for_list: Callable[[], None]
    """Take the list that the operator has put there since, if there is one."""

    def await_everybody(self) -> None:
        """Wait until every member has answered once, at most for the deadline; not if the others have begun.
        Afterwards nobody is waited for as one who has yet to start: a peer that dies in the first round
        costs no more than in any other."""
        deadline = self.calls.membership.limits.deadline
        unseen, logged = {member.id for member in self.calls.others}, False
        ends = time.monotonic() + deadline
        while unseen and time.monotonic() < ends:
            replies = self._replies()
            if self._are_there(replies, self.gate.round + 1):
                return
            unseen -= {id for id, reply in replies.items() if reply.status is not Status.REFUSED}
            if unseen and not logged:
                self.journal.write("waiting", peers=sorted(unseen), seconds=deadline)
                logged = True
            if unseen:
                self._pause()
        if unseen:
            self.journal.write("absent", peers=sorted(unseen))

    def await_first_round(self) -> None:
        """For a site that joins later: wait until the others are in the round from which this one takes
        part, however long that is. A site that began at once would wait out one deadline after another and play the
        rounds alone."""
        membership = self.calls.membership
        self.journal.write("waiting", round=membership.first_round, epoch=membership.epoch)
        while not self._are_there(self._replies(), membership.first_round):
            self._pause()

    def _are_there(self, replies: dict[str, Reply], round: int) -> bool:
        """Whether the others are in a round: more of those who answer than are not, and at least two where
        there are two. One member alone must not make this node begin without the others."""
        there = sum(reply.status is not Status.REFUSED and reply.round >= round for reply in replies.values())
        return 2 * there > len(replies) and there >= min(2, len(self.calls.others))

    def _replies(self) -> dict[str, Reply]:
        """What the other members answer, by id; who cannot be reached is left out."""
        answers = self.calls.ask_each(self.calls.others, Kind.PROBE, self.calls.membership.first_round)
        return {id: answer for id, answer in answers.items() if isinstance(answer, Reply)}

    def _pause(self) -> None:
        self.look_for_list()
        self.gate.await_farewell(_PAUSE)
