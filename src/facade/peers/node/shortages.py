"""A site that runs out of open files, disk space or memory pauses: it says so, goes on answering what it can, tries
again after growing waits, and goes on by itself. This is the one place where that is waited for."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from facade.files import store
from facade.files.shortage import shortage
from facade.peers.node.journal import Journal, Metrics

NOTICE = "shortage.json"
"""In the run directory: why the site pauses, if it does."""
_NOTICE_BYTES = 1024
_SHORTEST, _LONGEST = 0.5, 30.0
"""Seconds between two attempts."""

Done = TypeVar("Done")


class Shortages:
    """Waits for one site. All of this is done by the thread that plays, so whatever ends that ends the waiting."""

    def __init__(
        self, run: Path, journal: Journal, metrics: Metrics, wait: Callable[[float], None] = time.sleep
    ) -> None:
        self._journal = journal
        self._metrics = metrics
        self._wait = wait
        self._began: float | None = None
        """When the pause began, if there is one."""
        with store.writing(run / NOTICE):
            # Made and opened now: in a pause there may be neither room nor a descriptor for it.
            self._notice = os.open(run / NOTICE, os.O_WRONLY | os.O_CREAT, store.PRIVATE)
            self._note(None)

    def outlast(self, act: Callable[[], Done]) -> Done:
        """Do something that can be done again, until there is enough of what it needs."""
        attempts = 0
        while True:
            try:
                done = act()
            except Exception as error:
                if shortage(error) is None:
                    raise
                lacking = error
            else:
                self.go_on()
                return done
            self.pause(lacking, attempts)
            attempts += 1

    def pause(self, error: Exception, attempts: int) -> None:
        """Wait, the longer the more attempts were in vain; say why when the pause begins."""
        if self._began is None:
            self._began = time.monotonic()
            why = {"lacks": shortage(error), "says": str(error)[:300]}
            self._metrics.shortage.set(1)
            self._note(why)
            self._journal.write("shortage", **why)
        self._wait(min(_SHORTEST * 2 ** min(attempts, 16), _LONGEST))

    def go_on(self) -> None:
        """There is enough again, if there was not."""
        if self._began is None:
            return
        seconds, self._began = time.monotonic() - self._began, None
        self._metrics.shortage.set(0)
        self._note(None)
        self._journal.write("shortage-over", seconds=round(seconds, 3))

    def _note(self, why: Any) -> None:
        """Write over what the notice says, byte for byte: that needs no new room on the disk."""
        with contextlib.suppress(OSError):  # some file systems take new room even so
            os.pwrite(self._notice, json.dumps(why).encode().ljust(_NOTICE_BYTES), 0)

    def close(self) -> None:
        """Nothing is waited for any more."""
        self._note(None)
        os.close(self._notice)


def read_notice(run: Path) -> dict[str, str] | None:
    """Why the site of a run directory pauses; None if it does not."""
    try:
        why = json.loads((run / NOTICE).read_bytes())
    except (OSError, ValueError):
        return None
    return why if isinstance(why, dict) else None
