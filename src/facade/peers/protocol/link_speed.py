"""How fast a peer answers, and how fast it sends: measured with a bounded number of bytes."""

from __future__ import annotations

import time
from typing import NamedTuple

from facade.peers.protocol.headers import Kind, Reply, Request, Status
from facade.peers.protocol.refusals import Reason, RefusedError
from facade.peers.protocol.rpc import Link
from facade.peers.trust.membership import Membership

_MEET_SECONDS, _MEASURE_SECONDS = 5.0, 20.0
_PROBES = 3
_SIZES = (1 << 18, 1 << 19, 1 << 20)
"""Bytes asked for, one after the other, as the chunks of a message grow; 1.75 MiB in all."""


class LinkSpeed(NamedTuple):
    """The way to a peer, measured."""

    trip: float
    """Seconds of a call and its answer."""
    rate: float
    """Bytes a second, with the trip in it: messages are pulled in chunks, a call for each."""

    def takes(self, size: int) -> float:
        """Seconds that a message of so many bytes takes."""
        return max(self.trip, size / self.rate)


class SpeedProbe:
    """One who measures."""

    def __init__(self, link: Link, membership: Membership, number: int) -> None:
        self._link = link
        self._membership = membership
        self._number = number

    def meet(self) -> Reply | None:
        """Connect; the reply if it is a refusal."""
        reply = self._call(Kind.PROBE, 0, _MEET_SECONDS)
        return reply if reply.status is Status.REFUSED else None

    def measure(self) -> LinkSpeed:
        """The best of a few tries: what the connection can do, not how busy it was."""
        trip = min(self._timed(Kind.PROBE, 0) for _ in range(_PROBES))
        sizes = [size for size in _SIZES if size <= self._membership.limits.chunk] or [self._membership.limits.chunk]
        return LinkSpeed(trip, max(size / self._timed(Kind.MEASURE, size) for size in sizes))

    def _timed(self, kind: Kind, length: int) -> float:
        began = time.perf_counter()
        reply = self._call(kind, length, _MEASURE_SECONDS)
        seconds = time.perf_counter() - began
        if reply.status is Status.REFUSED:
            raise RefusedError(reply.reason)
        if len(reply.chunk) != length:
            raise RefusedError(Reason.WRONG_SIZE, f"{len(reply.chunk)} bytes came, {length} were asked for")
        return seconds

    def _call(self, kind: Kind, length: int, seconds: float) -> Reply:
        membership = self._membership
        request = Request(kind, membership.digest, self._number, membership.first_round, 0, length)
        return self._link.call(request, seconds)
