"""What a node tells its operator: a log of JSON lines, and metrics for Prometheus."""

from __future__ import annotations

import contextlib
import datetime
import json
import math
import os
import threading
import warnings
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from facade.errors import StorageError
from facade.files import store
from facade.files.shortage import shortage

_CHECKSUM = b',"crc32":"%08x"}'
Event = dict[str, Any]
"""A line of the log: its time, the event's name, and facts."""


class Journal:
    """An append-only log; every line has a time, an event and a checksum. Lines are written whole and at once,
    so a killed process leaves at most one half line, which the next line ends. Each line has its own checksum: the
    operator may cut the log into files, or delete it. What a full disk does not take is kept and written later, in its
    place: whoever has something to say need not wait, and whoever needs it on the disk (`sync`) is told."""

    def __init__(self, path: Path, listen: Callable[[Event], None] = lambda event: None) -> None:
        self._path = path
        self._listen = listen
        """Told every event, by the thread that it happens in."""
        with store.writing(path):
            store.make_directory(path.parent)
            torn = path.exists() and not path.read_bytes().endswith(b"\n") and path.stat().st_size > 0
            self._left = bytearray(b"\n" if torn else b"")
            """Not written yet. Where half a line stands at the end, a new one must not be glued to it."""
            self._file = store.appending(path)
        self._lock = threading.Lock()
        self.refusals: Counter[str] = Counter()

    def write(self, event: str, **facts: Any) -> None:
        """Add a line."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        line: Event = {"time": now, "event": event} | facts
        self._add(_with_checksum(json.dumps(line, separators=(",", ":")).encode()) + b"\n")
        self._listen(line)

    def _add(self, line: bytes) -> None:
        with self._lock:
            if self._file.closed:  # a handler may outlive its server by a moment
                return
            self._left += line
            try:
                self._write_out()
            except StorageError as error:
                if shortage(error) is None:
                    raise

    def _write_out(self) -> None:
        with store.writing(self._path):
            while self._left:  # on a disk that is nearly full, part of a line may be taken
                del self._left[: self._file.write(self._left)]

    def sync(self) -> None:
        """Have all lines on the disk; StorageError if that is not possible."""
        with self._lock, store.writing(self._path):
            self._write_out()
            os.fsync(self._file.fileno())

    def refused(self, peer: str, reason: str, **facts: Any) -> None:
        """Count a refusal and add its line; of a flood for one reason, the first hundred and then every power of
        two."""
        with self._lock:
            self.refusals[reason] += 1
            count = self.refusals[reason]
        if count & (count - 1) == 0 or count <= 100:
            self.write("refused", peer=peer, reason=reason, count=count, **facts)

    def close(self) -> None:
        """No more lines."""
        with self._lock:
            if not self._file.closed:
                with contextlib.suppress(StorageError):
                    self._write_out()
            self._file.close()


def lines(path: Path) -> list[Event]:
    """The events of a log, without their checksums. Lines that are cut off or damaged are left out, and a warning names
    each, but for the last one while it is being written; those of a version before there were checksums are taken as
    they are, where no line has one."""
    events, content = [], path.read_bytes() if path.exists() else b""
    has_checksums = b'"crc32":' in content
    *ended, last = content.split(b"\n")
    for number, line in enumerate([*ended, last] if event_of(last[:-1], has_checksums) else ended, start=1):
        event = event_of(line, has_checksums)
        if event is not None:
            events.append(event)
        elif line:
            warnings.warn(f"{path} is cut off or damaged: line {number} is not used", stacklevel=2)
    return events


def _with_checksum(line: bytes) -> bytes:
    """A line, which is a JSON object, with the CRC-32 of what stands before it as its last entry."""
    body = line.removesuffix(b"}")
    return body + _CHECKSUM % zlib.crc32(body)


def event_of(line: bytes, has_checksum: bool) -> Event | None:
    """What a line says; None if it is not whole, or lacks the checksum that it should have."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):  # a log may be another site's
        return None
    if not isinstance(event, dict):
        return None
    if event.pop("crc32", None) is None:
        return None if has_checksum else event
    body = line[: -len(_CHECKSUM % 0)]
    return event if line == body + _CHECKSUM % zlib.crc32(body) else None


class Metrics:
    """Numbers for Prometheus, of one study. `StudyMetrics` shows them; without it they are kept and shown to nobody."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info

        self.registry = CollectorRegistry()
        self.obstacle: Callable[[], str] = lambda: "starting"
        """Why peers cannot work with this site in that study; nothing if they can."""

        def gauge(name: str, help: str) -> Gauge:
            return Gauge(f"facade_{name}", help, registry=self.registry)

        def counter(name: str, help: str, *labels: str) -> Counter:
            return Counter(f"facade_{name}", help, labels, registry=self.registry)

        self.site = Info("facade_site", "This site's id, its version and its protocol", registry=self.registry)
        self.round = gauge("round", "Round this node is in")
        self.rounds = gauge("rounds", "Rounds of the run")
        self.finished = gauge("finished", "1 when this node has finished its run")
        self.seconds_left = gauge("seconds_left", "Seconds until the run is over, at the pace of the last rounds")
        self.accuracy = gauge("accuracy", "Accuracy on this site's test data, from 0 to 1, at the last evaluation")
        self.heard = gauge("neighbours_heard", "Neighbours heard in the last round")
        self.paused = gauge("paused", "1 while too few members answer for this node to go on")
        self.choice = gauge("chosen_head", "Head this node chose last")
        self.certificate_days = gauge("certificate_days_left", "Days until the certificate expires")
        self.list_days = gauge("list_days_left", "Days until the list of members expires, if it does")
        self.shortage = gauge("shortage", "1 while this node pauses for want of files, disk space or memory")
        self.seconds = Histogram("facade_round_seconds", "Seconds a round took", registry=self.registry)
        self.rejected = counter("rejected", "What was refused, by reason", "reason")
        self.dropped = counter("dropped", "Messages that the guard did not use, by the part dropped", "part")
        self.gate_closed = counter("gate_closed", "Exchanges after which this node went on as if it had heard nobody")
        self.bytes = counter("heard_bytes", "Payload bytes heard")
        self.retries = counter("retries", "Calls that were made again")
        self.misses = counter("deadline_misses", "Messages that did not come in time")
        self.peer_heard = counter("peer_heard", "Messages that came in time, by the peer that sent them", "peer")
        self.peer_missed = counter("peer_missed", "Messages that did not come in time, by the peer", "peer")
        for unknown in (self.seconds_left, self.accuracy, self.list_days):
            unknown.set(math.nan)  # 0 would say that the run is over, or the site lost
