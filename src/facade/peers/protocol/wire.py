"""Messages as bytes and back: an envelope, then safetensors. Nothing that arrives is interpreted:
its envelope and its safetensors header must be, byte for byte, the ones computed here.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Set
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from facade.core import tree
from facade.core.tree import Params
from facade.peers.protocol.incoming import Incoming
from facade.peers.protocol.refusals import Reason, RefusedError
from facade.runs import state_files

_ENVELOPE = struct.Struct("<8s32sIQ")
"""A mark, the digest of the membership, the sender's number, the round. Fixed size and one encoding
only: there is nothing to parse, so a comparison of bytes checks all of it."""
_MARK = b"facade-m"

_BLOCK = 1 << 16
"""Numbers."""
LARGEST_RATIO = 10.0
"""The norm of a message's entry may be this many times that of one's own."""


@dataclass(frozen=True)
class Origin:
    """Where a message comes from."""

    membership: bytes
    """SHA-256 of the membership list."""
    sender: int
    round: int

    @property
    def envelope(self) -> bytes:
        """What stands before the message."""
        return _ENVELOPE.pack(_MARK, self.membership, self.sender, self.round)


def parts(origin: Origin, message: Any) -> list[bytes | memoryview]:
    """The bytes of one node's message [1, ...], one part after the other: its tensors where they lie."""
    return [origin.envelope, *state_files.file_parts(state_files.in_one_piece(message))]


def pack(origin: Origin, message: Any) -> bytes:
    """All `parts` in one piece."""
    return b"".join(parts(origin, message))


class MessageForm:
    """What messages of a run look like: names, dtypes, shapes and how large weights may be. Made
    from one's own message, for names, dtypes and shapes are the same at every node and round. `without_weights`
    names the top-level entries whose numbers may be of any size, `variances` the tensors, by path, that are never
    negative."""

    def __init__(self, own: Any, without_weights: Set[str] = frozenset(), variances: Set[str] = frozenset()) -> None:
        piecewise = state_files.in_one_piece(own)
        self._own = own
        self._header = next(state_files.file_parts(piecewise))
        self._entries = state_files.placed(piecewise)
        self._tensors_at = _ENVELOPE.size + len(self._header)
        self.size = self._tensors_at + tree.row_bytes(own)
        """Bytes of every message."""
        self._without_weights = without_weights
        self._variances = variances
        self._limits = {name: LARGEST_RATIO * max(1.0, norm) for name, norm in self._norms(own).items()}

    def room(self) -> Incoming:
        """Room for a message."""
        return Incoming(self.size, self._tensors_at)

    def unpack(self, content: bytes | memoryview, digest: bytes, origin: Origin) -> Any:
        """`read` for a message that is there already."""
        if len(content) != self.size:
            raise RefusedError(Reason.WRONG_SIZE, f"{len(content)} bytes came, {self.size} were expected")
        incoming = self.room()
        incoming.add(content)
        return self.read(incoming, digest, origin)

    def read(self, incoming: Incoming, digest: bytes, origin: Origin) -> Any:
        """The message [1, ...] that has come, where it lies; RefusedError unless it is what it was announced to be."""
        if incoming.sha256 != digest:
            raise RefusedError(Reason.WRONG_DIGEST)
        content = incoming.content
        _check_envelope(bytes(content[: _ENVELOPE.size]), origin)
        if content[_ENVELOPE.size : self._tensors_at] != self._header:
            raise RefusedError(Reason.WRONG_HEADER, "its tensors are not those of this algorithm")
        return self._checked(state_files.views(content[self._tensors_at :], self._entries))

    def _checked(self, tensors: Params) -> Any:
        message = tree.unflatten(tensors, self._own)
        broken = not_finite(message)
        if broken:
            raise RefusedError(Reason.NOT_FINITE, broken[0])
        leaves = tree.flatten(message)
        for name in sorted(self._variances):
            if bool((leaves[name] < 0).any()):
                raise RefusedError(Reason.NEGATIVE_VARIANCE, name)
        for name, norm in self._norms(message).items():
            limit = self._limits[name]
            if norm > limit:
                raise RefusedError(Reason.TOO_LARGE, f"the norm of its {name} is {norm:.3g}, the limit {limit:.3g}")
        return message

    def _norms(self, message: Any) -> dict[str, float]:
        """Euclidean norms of a message's entries with weights; of a message without entries, that of all of it."""
        entries = message if isinstance(message, dict) else {"message": message}
        return {name: _norm(entry) for name, entry in entries.items() if name not in self._without_weights}


def not_finite(message: Any) -> list[str]:
    """The names of tensors that hold infinities or what is no number."""
    return [name for name, leaf in tree.flatten(message).items() if leaf.is_floating_point() and not _is_finite(leaf)]


def _check_envelope(envelope: bytes, origin: Origin) -> None:
    if envelope == origin.envelope:
        return
    mark, membership, sender, round = _ENVELOPE.unpack(envelope)
    if mark != _MARK or membership != origin.membership:
        raise RefusedError(Reason.OTHER_FEDERATION)
    if sender != origin.sender:
        raise RefusedError(Reason.OTHER_SENDER, f"it is a message of node {sender}")
    raise RefusedError(Reason.OTHER_ROUND, f"it is of round {round}, round {origin.round} was asked for")


def _is_finite(leaf: Tensor) -> bool:
    # A sum of squares is not finite if one of them is not; else only if numbers are so large that it exceeds a double.
    return math.isfinite(_squares(leaf)) or bool(torch.isfinite(leaf).all())


def _norm(entry: Any) -> float:
    """Euclidean norm of all floating-point numbers of an entry; 0 if there are none."""
    return math.sqrt(sum(_squares(leaf) for leaf in tree.flatten(entry).values() if leaf.is_floating_point()))


def _squares(leaf: Tensor) -> float:
    """The sum of squares, in double precision; a block at a time, which stays in the processor's cache."""
    numbers = leaf.reshape(-1)
    blocks = (numbers[start : start + _BLOCK].double() for start in range(0, len(numbers), _BLOCK))
    return sum(float(block.dot(block)) for block in blocks)
