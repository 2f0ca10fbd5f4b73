"""The beginning of a run among peers: sites do not start at the same moment, nor all in the first round."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from facade.peers.node.ask_members import ask_each, others
from facade.peers.protocol.headers import Kind, Reply, Status

if TYPE_CHECKING:
    from facade.peers.node.node import Node

_PAUSE = 0.2


def await_everybody(node: Node) -> None:
    """Wait until every member has answered once, at most for the deadline; not if the others have begun.
    Afterwards nobody is waited for as one who has yet to start: a peer that dies in the first round
    costs no more than in any other."""
    unseen, told = {member.id for member in others(node)}, False
    ends = time.monotonic() + node.membership.limits.deadline
    while unseen and time.monotonic() < ends:
        replies = _ask_all(node)
        if _are_there(node, replies, node.gate.round + 1):
            return
        unseen -= {id for id, reply in replies.items() if reply.status is not Status.REFUSED}
        if unseen and not told:
            node.journal.write("waiting", peers=sorted(unseen), seconds=node.membership.limits.deadline)
            told = True
        if unseen:
            _pause(node)
    if unseen:
        node.journal.write("absent", peers=sorted(unseen))


def await_first_round(node: Node) -> None:
    """For a site that joins later: wait until the others are in the round from which this one takes
    part, however long that is. A site that began at once would wait out one deadline after another and play the
    rounds alone."""
    first = node.membership.first_round
    node.journal.write("waiting", round=first, epoch=node.membership.epoch)
    while not _are_there(node, _ask_all(node), first):
        _pause(node)


def _are_there(node: Node, replies: dict[str, Reply], round: int) -> bool:
    """Whether the others are in a round: more of those who answer than are not, and at least two where
    there are two. One member alone must not make this node begin without the others."""
    there = sum(reply.status is not Status.REFUSED and reply.round >= round for reply in replies.values())
    return 2 * there > len(replies) and there >= min(2, node.membership.n - 1)


def _ask_all(node: Node) -> dict[str, Reply]:
    """What the other members answer, by id; who cannot be reached is left out."""
    asked = ask_each(node, others(node), Kind.PROBE, node.membership.first_round)
    return {id: answer for id, answer in asked.items() if isinstance(answer, Reply)}


def _pause(node: Node) -> None:
    node.lists.look(node.journal)
    with node.gate.said:
        node.gate.said.wait(_PAUSE)
