"""What is watched, looked at when somebody asks and not too long ago, and what has changed since they asked last."""

from __future__ import annotations

import json
import threading
import time
from typing import NamedTuple

from facade.watch.places import Places
from facade.watch.subject import Section, Subject

SOONEST, LATEST = 1.0, 1.6
"""Seconds between two looks. They are further apart where a look costs more, and close enough to follow a round."""
_SHARE = 400
"""A look that took one second is followed by one after so many, within these bounds."""
_QUIET = 5.0
"""Seconds between two looks at what is over, and at where new runs may begin if that costs little."""


class _Sent(NamedTuple):
    """A section as browsers get it."""

    version: int
    content: str


class Changes(NamedTuple):
    """What is new to somebody who asked before."""

    version: int
    """To be given the next time."""
    content: str
    """JSON: {"order": ids, "whole": bool, "subjects": {id: {section: what it says, or null}}}; empty: nothing."""


class Watching:
    """All who ask share the looks. Nobody asks, nothing is read."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._lock = threading.Lock()
        self._subjects: list[Subject] = []
        self._looked: dict[str, float] = {}
        """When each subject was looked at last."""
        self._sent: dict[tuple[str, str], _Sent] = {}
        self._order: list[str] = []
        self._version = 0
        self._next = self._next_search = 0.0

    def changes(self, since: int, at_once: bool = False) -> Changes:
        """What has changed since a version; 0: all there is. `at_once`: look, however long ago the last look was."""
        with self._lock:
            if at_once or time.monotonic() >= self._next:
                self._look(at_once)
            new: dict[str, list[str]] = {}
            for (id, name), sent in self._sent.items():
                if sent.version > since and (since or sent.content != "null"):
                    new.setdefault(id, []).append(f"{json.dumps(name)}:{sent.content}")
            if since and not new:
                return Changes(self._version, "")
            subjects = ",".join(f"{json.dumps(id)}:{{{','.join(sections)}}}" for id, sections in new.items())
            head = f'"whole":{json.dumps(not since)},"order":{json.dumps(self._order)}'
            return Changes(self._version, f'{{{head},"subjects":{{{subjects}}}}}')

    @property
    def is_behind(self) -> bool:
        """Whether there is more to read at once."""
        return self._next == 0.0

    @property
    def pause(self) -> float:
        """Seconds until something may be new."""
        return max(0.05, self._next - time.monotonic())

    def _look(self, at_once: bool = False) -> None:
        began = time.thread_time()
        self._version += 1
        self._search()
        more = False
        for subject in self._subjects:
            now, last = time.monotonic(), self._looked.get(str(subject.path), 0.0)
            if last and not at_once and subject.quiet and now - last < _QUIET:
                continue
            self._looked[str(subject.path)] = now
            more |= self._look_at(subject, first=not last)
        spent = time.thread_time() - began
        self._next = 0.0 if more else time.monotonic() + min(max(SOONEST, _SHARE * spent), LATEST)

    def _look_at(self, subject: Subject, first: bool) -> bool:
        """Look at one, and note what has changed; whether there is more to read at once."""
        id = str(subject.path)
        try:
            looked = subject.look()
            if looked.changed or first:
                self._note(id, subject.sections())
        except (OSError, LookupError, TypeError, ValueError, ArithmeticError) as error:
            says = f"its files are damaged, or of another version ({type(error).__name__}: {error})"
            about = {"title": subject.title, "kind": "run", "facts": []}
            progress = {"phase": "damaged", "says": says, "done": 0, "rounds": 0}
            self._note(id, {"about": about, "progress": progress})
            return False
        return looked.more

    def _search(self) -> None:
        """Look for runs that have begun."""
        began = time.monotonic()
        if began < self._next_search:
            return
        self._subjects = self._places.subjects()
        order = [str(subject.path) for subject in self._subjects]
        for id, name in [key for key in self._sent if key[0] not in order]:
            self._put(id, name, "null")
        self._order, self._looked = order, {id: at for id, at in self._looked.items() if id in order}
        spent = time.monotonic() - began
        soon = 1.0 if not all(subject.quiet for subject in self._subjects) or not order else _QUIET
        self._next_search = time.monotonic() + max(soon, _SHARE * spent)

    def _note(self, id: str, sections: dict[str, Section]) -> None:
        for name, section in sections.items():
            self._put(id, name, json.dumps(section, separators=(",", ":"), allow_nan=False))
        for name in [name for other, name in self._sent if other == id and name not in sections]:
            self._put(id, name, "null")

    def _put(self, id: str, name: str, content: str) -> None:
        before = self._sent.get((id, name))
        if before is None or before.content != content:
            self._sent[id, name] = _Sent(self._version, content)
