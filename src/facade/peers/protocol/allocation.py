"""How the process gets memory for the chunks of messages."""

from __future__ import annotations

import contextlib
import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""What glibc's malloc.h calls them (M_...)."""
_BLOCK, _KEPT, _ARENAS = 1 << 24, 1 << 24, 4


def keep_freed_chunks() -> None:
    """Have the C library use the memory of a freed chunk for the next one. By default it returns every one to the
    system, which hands it out again page by page, each cleared: that costs more than to encrypt it. A little is kept
    in a few places only; what is larger than any chunk, such as a message, goes back at once as ever."""
    with contextlib.suppress(OSError, AttributeError):  # another C library has its own ways
        allocator = ctypes.CDLL(None)
        allocator.mallopt(_MMAP_THRESHOLD, _BLOCK)
        allocator.mallopt(_TRIM_THRESHOLD, _KEPT)
        allocator.mallopt(_ARENA_MAX, _ARENAS)
