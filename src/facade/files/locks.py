"""Locks that end with the process that holds them."""

from __future__ import annotations

import fcntl


def lock(handle: int) -> bool:
    """Lock an open file or directory until it is closed; BlockingIOError while another process has locked it, False
    where the file system has no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True
