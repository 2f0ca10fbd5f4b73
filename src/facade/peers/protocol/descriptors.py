"""Open files and connections that this process may have: what a site needs, and how it is divided."""

from __future__ import annotations

import contextlib
import resource

_FILES = 128
"""Kept for files, libraries and what a process has open anyway."""
_PER_MEMBER = 10
"""Kept for each member: a connection to it, and two from it, which take three descriptors each, with some to spare."""
PER_CONNECTION = 3
"""Descriptors of a connection that is passed on to gRPC: its own, and both ends of the way there."""
_MOST_UNPROVEN, _FEWEST_UNPROVEN = 256, 16
_ENOUGH = 65_536
"""A limit beyond which more helps nobody."""


def limit() -> int:
    """Descriptors that this process may have at the moment."""
    return min(_finite(resource.getrlimit(resource.RLIMIT_NOFILE)[0]), _ENOUGH)


def highest_limit() -> int:
    """Descriptors that this process may allow itself."""
    return min(_finite(resource.getrlimit(resource.RLIMIT_NOFILE)[1]), _ENOUGH)


def raise_limit() -> None:
    """Allow this process as many as the system lets it, where it may."""
    wanted = highest_limit()
    if limit() < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def needed(members: int) -> int:
    """The least with which a site of a federation of so many can be flooded by strangers and run on."""
    return _FILES + _PER_MEMBER * members + PER_CONNECTION * _FEWEST_UNPROVEN


def unproven_places(members: int) -> int:
    """Connections that may be open at a time though nobody knows yet whose they are: what members and files leave
    over, and no more than half of it."""
    spare = limit() - _FILES - _PER_MEMBER * members
    return max(_FEWEST_UNPROVEN, min(_MOST_UNPROVEN, spare // (2 * PER_CONNECTION)))


def _finite(count: int) -> int:
    return _ENOUGH if count == resource.RLIM_INFINITY else count
