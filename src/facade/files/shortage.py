"""What a machine can run out of and have again later, told apart from what is broken."""

from __future__ import annotations

import errno

_OF_THE_SYSTEM = {
    errno.EMFILE: "open files that this process may have",
    errno.ENFILE: "open files that this machine may have",
    errno.ENOSPC: "space on the disk",
    errno.EDQUOT: "space on the disk that this user may have",
    errno.ENOMEM: "memory",
}
_OF_LIBRARIES = {"can't allocate memory": "memory", "can't start new thread": "threads that this process may have"}
"""By what Python or PyTorch says in a RuntimeError."""


def shortage(error: BaseException | None) -> str | None:
    """What there is too little of, if an error, or the one that caused it, says so; None for all others."""
    while error is not None:
        if isinstance(error, MemoryError):
            return "memory"
        if isinstance(error, OSError) and error.errno in _OF_THE_SYSTEM:
            return _OF_THE_SYSTEM[error.errno]
        if isinstance(error, RuntimeError):
            for says, what in _OF_LIBRARIES.items():
                if says in str(error):
                    return what
        error = error.__cause__
    return None
