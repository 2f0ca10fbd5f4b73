"""Messages as bytes and back: an envelope, then safetensors. Nothing that arrives is interpreted:
its envelope and its safetensors header must be, byte for byte, the ones computed here.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from facade import tree
from facade.peers.refusals import Reason, RefusedError

_ENVELOPE = struct.Struct("<8s32sIQ")
"""A mark, the digest of the membership, the sender's number, the round. Fixed size and one encoding
only: there is nothing to parse, so a comparison of bytes checks all of it."""
_MARK = b"facade-m"

MODEL_PARTS = ("core", "head", "model")
"""Top-level entries of a message that hold weights."""
LARGEST_RATIO = 10.0
"""A part's norm may be this many times that of one's own."""


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


def pack(origin: Origin, message: Any) -> bytes:
    """The bytes of one node's message [1, ...]."""
    return origin.envelope + _saved(message)


def _saved(message: Any) -> bytes:
    from safetensors.torch import save

    return save({name: leaf.detach().cpu().contiguous() for name, leaf in tree.flatten(message).items()})


class Form:
    """What messages of a run look like: names, dtypes, shapes and how large weights may be. Made
    from one's own message, for names, dtypes and shapes are the same at every node and round."""

    def __init__(self, own: Any) -> None:
        content = _saved(own)
        length = 8 + int.from_bytes(content[:8], "little")
        self._own = own
        self._header = content[:length]
        self.size = _ENVELOPE.size + len(content)
        """Bytes of every message."""
        self._limits = {part: LARGEST_RATIO * max(1.0, _norm(own, part)) for part in MODEL_PARTS}

    def unpack(self, content: bytes, digest: bytes, origin: Origin) -> Any:
        """The message [1, ...]; RefusedError unless it is what it was announced to be."""
        if len(content) != self.size:
            raise RefusedError(Reason.WRONG_SIZE, f"{len(content)} bytes came, {self.size} were expected")
        if hashlib.sha256(content).digest() != digest:
            raise RefusedError(Reason.WRONG_DIGEST)
        _check_envelope(content[: _ENVELOPE.size], origin)
        body = memoryview(content)[_ENVELOPE.size :]
        if body[: len(self._header)] != self._header:
            raise RefusedError(Reason.WRONG_HEADER, "its tensors are not those of this algorithm")
        return self._checked(bytes(body))

    def _checked(self, body: bytes) -> Any:
        from safetensors.torch import load

        flat = load(body)
        for name, leaf in flat.items():
            if leaf.is_floating_point() and not bool(torch.isfinite(leaf).all()):
                raise RefusedError(Reason.NOT_FINITE, name)
        message = tree.unflatten(flat, self._own)
        for part, limit in self._limits.items():
            norm = _norm(message, part)
            if norm > limit:
                raise RefusedError(Reason.TOO_LARGE, f"the norm of its {part} is {norm:.3g}, the limit {limit:.3g}")
        return message


def _check_envelope(envelope: bytes, origin: Origin) -> None:
    if envelope == origin.envelope:
        return
    mark, membership, sender, round = _ENVELOPE.unpack(envelope)
    if mark != _MARK or membership != origin.membership:
        raise RefusedError(Reason.OTHER_FEDERATION)
    if sender != origin.sender:
        raise RefusedError(Reason.OTHER_SENDER, f"it is a message of node {sender}")
    raise RefusedError(Reason.OTHER_ROUND, f"it is of round {round}, round {origin.round} was asked for")


def _norm(message: Any, part: str) -> float:
    """Euclidean norm of all weights of a part; 0 if there is no such part."""
    if not isinstance(message, dict) or part not in message:
        return 0.0
    leaves: list[Tensor] = [leaf for leaf in tree.flatten(message[part], part).values() if leaf.is_floating_point()]
    return float(torch.stack([leaf.double().norm() for leaf in leaves]).norm()) if leaves else 0.0
