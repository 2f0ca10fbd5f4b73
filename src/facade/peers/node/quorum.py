"""Whether enough members are there to go on. Where they are not, a site pauses in its round: it serves what it has
published, follows new lists, and goes on when enough answer again."""

from __future__ import annotations

import math
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Any

from facade.peers.node.followed_lists import FollowedLists
from facade.peers.node.member_calls import MemberCalls
from facade.peers.node.presence import Presence
from facade.peers.node.records import Records
from facade.peers.protocol.gate import Gate
from facade.peers.protocol.headers import Kind

_PAUSE = 0.5

Tell = Callable[[int, dict[str, Any] | None], None]
"""Writes into the status that a site pauses in a round, with what; or that it does not."""


@dataclass
class Quorum:
    """More than a share of the members, this site included, have answered lately or have finished their run. The list
    in force names the share."""

    lists: FollowedLists
    gate: Gate
    presence: Presence
    calls: Callable[[], MemberCalls]
    """To the members of the list in force."""
    records: Records
    tell: Tell
    waived: bool = False
    """Whether the operator has this site go on without a quorum."""
    _paused_for: list[str] | None = None
    """Who was said to be absent last, while this site pauses."""

    @property
    def is_asked_for(self) -> bool:
        """Whether the list in force has a quorum, and this site keeps to it."""
        return not self.waived and self.lists.membership.limits.quorum > 0

    @property
    def needed(self) -> int:
        """How many members must be there."""
        membership = self.lists.membership
        share = round(membership.limits.quorum * membership.n, 9)  # 0.29 of 100 are 29, though floats say a little less
        return min(math.floor(share) + 1, membership.n)

    def absent(self) -> list[str]:
        """The members that are not there, ascending. Who has said farewell has finished."""
        others, farewells = self.calls().others, self.gate.farewells
        return [m.id for m in others if m.id not in farewells and not self.presence.is_there(m.id)]

    def hold(self, round: int, unheard: Set[str] = frozenset()) -> bool:
        """Wait in a round until enough members are there; whether that took a pause. `unheard`: who did not come, in a
        wait in which nobody did. Unless all of them are known to be silent, the others are asked before this site
        goes on alone. NextEpochError if the round is to be played by another list."""
        there = self._is_there()
        if not there or any(not self.presence.is_silent(id) for id in unheard):
            self._call_roll(round, there)
        held = False
        while not self._is_there():
            held = True
            self._say_paused(round)
            self.lists.check_in_force(round)
            self.presence.wait(_PAUSE)
        self._say_resumed(round)
        return held

    def _is_there(self) -> bool:
        return not self.is_asked_for or self.lists.membership.n - len(self.absent()) >= self.needed

    def _call_roll(self, round: int, there: bool) -> None:
        """Ask all members at once; if enough seem to be there, not those who are known to be silent."""
        if self.is_asked_for:
            calls = self.calls()
            asked = [m for m in calls.others if not there or not self.presence.is_silent(m.id)]
            calls.ask_each(asked, Kind.PROBE, round)

    def _say_paused(self, round: int) -> None:
        """Say it once in the log, and in the status whenever others are absent than before."""
        absent, n = self.absent(), self.lists.membership.n
        if absent == self._paused_for:
            return
        begins, self._paused_for = self._paused_for is None, absent
        facts = {"there": n - len(absent), "needed": self.needed, "members": n, "absent": absent}
        self.tell(round, facts)
        if begins:
            self.records.metrics.paused.set(1)
            self.records.journal.write("paused", round=round, **facts)

    def _say_resumed(self, round: int) -> None:
        if self._paused_for is not None:
            self._paused_for = None
            self.records.journal.write("resumed", round=round)
            self.records.metrics.paused.set(0)
            self.tell(round, None)
