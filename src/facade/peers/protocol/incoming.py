"""Where a message comes in: its bytes in one place, hashed as they come."""

from __future__ import annotations

import hashlib

import numpy as np

_ALIGNMENT = 64
"""Bytes; so that tensors can be read where they lie."""


class Incoming:
    """Room for one message of a known size, and as much of it as has come. What is read from it are views of it: its
    bytes are copied here once and nowhere else."""

    def __init__(self, size: int, tensors_at: int = 0) -> None:
        """`tensors_at`: the place of its first tensor."""
        room = np.empty(size + _ALIGNMENT, np.uint8)  # pages that nothing was written to take no memory
        before = -(room.ctypes.data + tensors_at) % _ALIGNMENT
        self.size = size
        self.come = 0
        """Bytes that have come."""
        self.content = room.data[before : before + size]
        self._digest = hashlib.sha256()

    def add(self, part: bytes | memoryview) -> None:
        """Keep the next bytes."""
        self._digest.update(part)
        self.content[self.come : self.come + len(part)] = part
        self.come += len(part)

    @property
    def sha256(self) -> bytes:
        """Of what has come."""
        return self._digest.digest()
