"""The one way into a site that plays several studies: each has a gate of its own, and a call gets to the one whose list
it names.

Who calls must own the certificate of a current member of one of the studies before anything of the call is looked at.
Of the call, the digest of the list is looked at first. Where it is none of a study that the caller is a member of, the
call is refused and nothing else of it is read: that another study has this list makes no difference that can be seen.
All the rest is judged by that study's gate alone.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from facade.peers.protocol.gate import Gate
from facade.peers.protocol.headers import LONGEST_REQUEST, Reply, list_named
from facade.peers.protocol.refusals import Reason, RefusedError
from facade.peers.trust.membership import Member, Membership

MOST_CALLS = 4
"""Calls of one member at a time for every study, and one over each connection in any case; more are told to come
back."""


class NotPlayedError(Exception):
    """A study that the caller is a member of is not played here at the moment: nobody is there to answer."""


class _Open(NamedTuple):
    """A study that is being played."""

    number: int
    """Another one for every gate."""
    gate: Gate
    callers: Callable[[], list[Member]]
    """The members that may call at the moment."""


@dataclass(frozen=True)
class Caller:
    """The owner of a certificate, in all studies that it is a member of."""

    fingerprint: str
    """Of the certificate."""
    gates: tuple[tuple[Gate, str], ...]
    """With its id there."""
    key: tuple[tuple[int, str], ...]
    """Tells it from all others: the same id may be another site in another study."""

    @property
    def studies(self) -> int:
        """How many of this site's studies it is a member of."""
        return len(self.gates)


class StudyGates:
    """The gates of all studies that are being played."""

    def __init__(self, not_played: Iterable[Membership] = ()) -> None:
        self._open: tuple[_Open, ...] = ()
        """Replaced as a whole: calls come while studies begin and end."""
        self._not_played = {membership.digest: membership for membership in not_played}
        """Lists of studies that are not."""
        self._number = 0
        self._lock = threading.Lock()
        self._calls: defaultdict[object, Counter[str]] = defaultdict(Counter)
        """By caller, and then by connection."""

    def add(self, gate: Gate, callers: Callable[[], list[Member]]) -> None:
        """Let calls get to a study's gate from now on."""
        with self._lock:
            self._number += 1
            self._open = (*self._open, _Open(self._number, gate, callers))
            for membership in gate.epochs.known:
                self._not_played.pop(membership.digest, None)

    def remove(self, gate: Gate) -> None:
        """No calls get to a gate any more."""
        with self._lock:
            self._open = tuple(opened for opened in self._open if opened.gate is not gate)
            self._not_played |= {membership.digest: membership for membership in gate.epochs.known}

    def is_last(self, gate: Gate) -> bool:
        """Whether no other gate is open."""
        return all(opened.gate is gate for opened in self._open)

    @property
    def callers(self) -> list[Member]:
        """The members of all studies that may call at the moment."""
        return [member for opened in self._open for member in opened.callers()]

    def admit(self, fingerprint: str) -> Caller:
        """The owner of a certificate; RefusedError, which is counted and logged, for who is a member of no study."""
        admitted, refused = [], list[tuple[Gate, RefusedError]]()
        for opened in self._open:
            try:
                admitted.append((opened.number, opened.gate, opened.gate.admit(fingerprint)))
            except RefusedError as error:
                refused.append((opened.gate, error))
        if admitted:
            gates = tuple((gate, id) for _, gate, id in admitted)
            return Caller(fingerprint, gates, tuple((number, id) for number, _, id in admitted))
        # Of a stranger to all but one study, that one says why: its certificate has expired, say.
        refused.sort(key=lambda by: by[1].reason is Reason.STRANGER)
        if not refused or refused[0][1].reason is Reason.STRANGER:
            self._refuse_absent(fingerprint)
        gate, refusal = refused[0]
        gate.refuse("?", refusal)
        raise refusal

    def _refuse_absent(self, fingerprint: str) -> None:
        """NotPlayedError for a member of a study that is not being played."""
        if any(fingerprint in membership.by_fingerprint for membership in list(self._not_played.values())):
            raise NotPlayedError
        if not self._open:
            raise NotPlayedError

    def take_place(self, caller: Caller, connection: str = "") -> bool:
        """Whether a member may have one call more: over every connection one, so that one that is flooded does not keep
        the site's own calls away. Who takes a place frees it when the caller has its reply or has gone, no earlier:
        replies that nobody reads are kept in memory."""
        with self._lock:
            calls = self._calls[caller.key]
            free = sum(calls.values()) < MOST_CALLS * caller.studies or not calls[connection]
            calls[connection] += free
            return free

    def free_place(self, caller: Caller, connection: str = "") -> None:
        """A call of a member is over."""
        with self._lock:
            self._calls[caller.key][connection] -= 1
            self._calls[caller.key] += Counter()  # drops connections without calls

    def answer(self, caller: Caller, content: bytes) -> Reply:
        """The reply to a member's call; NotPlayedError where nobody is there to give one."""
        named = list_named(content) if len(content) <= LONGEST_REQUEST else None
        if named is None:  # it is no request, as any gate says
            gate, id = caller.gates[0]
            return gate.answer(id, content)
        for gate, id in caller.gates:
            if any(membership.digest == named for membership in gate.epochs.known):
                return gate.answer(id, content)
        return self._refuse_list(caller, named)

    def _refuse_list(self, caller: Caller, named: bytes) -> Reply:
        """The reply to a call by a list that no study of the caller's has."""
        gate, id = caller.gates[0]
        membership = self._not_played.get(named)
        if membership is not None and caller.fingerprint in membership.by_fingerprint:
            raise NotPlayedError
        gate.presence.note_call(id)
        ours = gate.epochs.governing(gate.round).digest.hex()[:16] if caller.studies == 1 else "others"
        why = RefusedError(Reason.OTHER_MEMBERSHIP, f"the caller's list is {named.hex()[:16]}, ours {ours}")
        reply = gate.refusal(id, why)
        return reply if caller.studies == 1 else reply.without_list()

    def refuse_busy(self, caller: Caller) -> Reply:
        """The reply to a call for which there is no place."""
        gate, id = caller.gates[0]
        return gate.refusal(id, RefusedError(Reason.BUSY))

    def note_flood(self, address: str, closed: int) -> None:
        """Strangers open more connections than there are places for: it is in every study's log."""
        for opened in self._open:
            opened.gate.note_flood(address, closed)
