"""How far a site is, how long it will take, how well it does, and whom it missed: for its status and its metrics."""

from __future__ import annotations

import datetime
import math
import statistics
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np

import facade
from facade.analysis import metrics as measured
from facade.core.types import Row
from facade.peers.node.journal import Metrics
from facade.peers.node.site_epoch import SiteEpoch
from facade.peers.trust import expiry, identity
from facade.peers.trust.membership import PROTOCOL
from facade.peers.trust.site import Site

_PACE = 9
"""Rounds whose median duration is the pace: a pause, or one slow peer, changes it little."""


class Progress:
    """Told of rounds and rows as they come; says what is known now."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._round = self._rounds = 0
        self._began: float | None = None
        """When the round was begun that this site is in."""
        self._durations: deque[float] = deque(maxlen=_PACE)
        self._accuracy: float | None = None
        self._evaluated: int | None = None
        """After how many rounds."""
        self._missed: list[str] = []
        self._finished = False

    def begin(self, epoch: SiteEpoch, round: int) -> None:
        """A site is in a round, of the run that a list describes."""
        now, membership = time.monotonic(), epoch.membership
        if self._began is not None and round > self._round:
            self._durations.append((now - self._began) / (round - self._round))
        if round != self._round or self._began is None:
            self._began = now
        self._round, self._rounds = round, epoch.plan.rounds
        self._metrics.round.set(round)
        self._metrics.rounds.set(self._rounds)
        left = self.seconds_left
        self._metrics.seconds_left.set(math.nan if left is None else left)
        days = expiry.days_left(membership.expires)
        self._metrics.list_days.set(math.nan if days is None else days)

    def introduce(self, site: Site) -> None:
        """Whose metrics these are."""
        who = {"id": site.settings.id, "version": facade.__version__, "protocol": str(PROTOCOL)}
        self._metrics.site.info(who)
        self._metrics.certificate_days.set(identity.days_left(site.certificate))

    def finish(self) -> None:
        """The run is over."""
        self._finished = True
        self._metrics.finished.set(1)
        self._metrics.seconds_left.set(0)

    def note_rows(self, rows: Iterable[Row]) -> None:
        """Rows of this site, as they are recorded or as they stand on the disk."""
        for row in rows:
            if row.get("choice") is not None:
                self._metrics.choice.set(row["choice"])
            if "confusion" in row:
                counts = np.asarray([row["confusion"]])
                self._accuracy, self._evaluated = float(measured.accuracy(counts)[0]), row["round"]
                self._metrics.accuracy.set(self._accuracy)

    def note_exchange(self, heard: Iterable[str], missed: Iterable[str]) -> None:
        """Whose messages came in a round, and whose did not come in time."""
        self._missed = sorted(missed)
        for counter, ids in ((self._metrics.peer_heard, heard), (self._metrics.peer_missed, self._missed)):
            for id in ids:
                counter.labels(id).inc()
                for either in (self._metrics.peer_heard, self._metrics.peer_missed):
                    either.labels(id)  # there from the first round on: what appears at 1 shows no increase

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the run is over at the pace of the last rounds; None before the second round."""
        left = self._rounds - self._round
        if self._finished:
            return 0.0
        return round(left * statistics.median(self._durations), 1) if self._durations else None

    def facts(self) -> dict[str, Any]:
        """For the status."""
        return {
            "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "version": facade.__version__,
            "accuracy": self._accuracy,
            "evaluated": self._evaluated,
            "seconds_left": self.seconds_left,
            "missed": self._missed,
        }
