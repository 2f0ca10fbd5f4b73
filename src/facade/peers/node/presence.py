"""Which members are there, by how they answer this site's own calls. This is what one site knows: it changes no graph
and is told to nobody."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable

PROBE_SECONDS = 2.0
"""A member that has answered nothing for so long is probed, and again after as long."""
CALLED_SECONDS = 0.5
"""One that does not answer and calls by itself is probed at once, but not more often than this."""
ANSWERED_SECONDS = 10.0
"""For so long an answer says that a member is there."""


class Presence:
    """When members last answered, and who does not. A member is silent if a probe was in vain and it has answered
    nothing since. Who only calls is not there yet: perhaps this site cannot reach it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        """Notified where there is something to look at: an answer of a silent member, or a call of one."""
        self._answered: dict[str, float] = {}
        self._probed: dict[str, float] = {}
        """When members were last probed."""
        self._called: dict[str, float] = {}
        """When members last called this site."""
        self._calling: set[str] = set()
        """Silent members that have called since they were last probed."""
        self._returns: Counter[str] = Counter()
        self._silent: set[str] = set()
        self._finished: set[str] = set()

    def now(self) -> float:
        """The time that answers are noted by, in seconds."""
        return self._clock()

    def note_answer(self, id: str, finished: bool = False) -> None:
        """A member has answered a call; `finished`: that it has finished its run."""
        with self._changed:
            self._answered[id] = self._clock()
            if finished:
                self._finished.add(id)
            if id in self._silent:
                self._silent.discard(id)
                self._returns[id] += 1
                self._changed.notify_all()

    def note_silence(self, id: str, since: float) -> None:
        """A probe that was sent at a time was in vain."""
        with self._changed:
            if self._answered.get(id, -1.0) < since:
                self._silent.add(id)

    def note_call(self, id: str) -> None:
        """A member has called this site. If it was silent, it is worth a probe; and if it had not called for a while,
        it is taken for back at once, for this site's own calls may take a second to find it."""
        with self._changed:
            now = self._clock()
            before = self._called.get(id, float("-inf"))
            self._called[id] = now
            if id in self._silent:
                self._returns[id] += now - before > ANSWERED_SECONDS
                self._calling.add(id)
                self._changed.notify_all()

    def is_silent(self, id: str) -> bool:
        """Whether a probe of a member was in vain, and all calls since."""
        return id in self._silent

    def returns(self, id: str) -> int:
        """How often a silent member has answered again, or has called after a while in which it did not."""
        return self._returns[id]

    def is_there(self, id: str) -> bool:
        """Whether a member has answered lately, or has finished its run and needs to answer no more."""
        with self._changed:
            lately = self._clock() - self._answered.get(id, float("-inf")) <= ANSWERED_SECONDS
            return id in self._finished or (lately and id not in self._silent)

    def take_due(self, ids: Iterable[str]) -> list[str]:
        """Those members who are to be probed now; they are taken for probed."""
        with self._changed:
            now = self._clock()
            due = [id for id in ids if now >= self._next_probe(id)]
            self._probed |= dict.fromkeys(due, now)
            self._calling.difference_update(due)
            return due

    def _next_probe(self, id: str) -> float:
        """When a member is to be probed."""
        probed = self._probed.get(id, float("-inf"))
        if id in self._calling:
            return probed + CALLED_SECONDS
        return max(probed, self._answered.get(id, float("-inf"))) + PROBE_SECONDS

    def wait(self, seconds: float) -> None:
        """Pause until a silent member has answered or called, at most so long."""
        with self._changed:
            self._changed.wait(seconds)
