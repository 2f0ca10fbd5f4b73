"""Messages as bytes and back: an envelope, then safetensors. Nothing that arrives is interpreted:
its envelope and its safetensors header must be, byte for byte, the ones computed here.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Set
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from facade.core import tree
from facade.peers.protocol.refusals import Reason, RefusedError

_ENVELOPE = struct.Struct("<8s32sIQ")
"""A mark, the digest of the membership, the sender's number, the round. Fixed size and one encoding
only: there is nothing to parse, so a comparison of bytes checks all of it."""
_MARK = b"facade-m"

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


def pack(origin: Origin, message: Any) -> bytes:
    """The bytes of one node's message [1, ...]."""
    return origin.envelope + _saved(message)


def _saved(message: Any) -> bytes:
    from safetensors.torch import save

    return save({name: leaf.detach().cpu().contiguous() for name, leaf in tree.flatten(message).items()})


class MessageForm:
    """What messages of a run look like: names, dtypes, shapes and how large weights may be. Made
    from one's own message, for names, dtypes and shapes are the same at every node and round. `without_weights`
    names the top-level entries whose numbers may be of any size, `variances` the tensors, by path, that are never
    negative."""

    def __init__(self, own: Any, without_weights: Set[str] = frozenset(), variances: Set[str] = frozenset()) -> None:
        content = _saved(own)
        length = 8 + int.from_bytes(content[:8], "little")
        self._own = own
        self._header = content[:length]
        self.size = _ENVELOPE.size + len(content)
        """Bytes of every message."""
        self._without_weights = without_weights
        self._variances = variances
        self._limits = {name: LARGEST_RATIO * max(1.0, norm) for name, norm in self._norms(own).items()}

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

        message = tree.unflatten(load(body), self._own)
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
    leaves = tree.flatten(message).items()
    return [name for name, leaf in leaves if leaf.is_floating_point() and not bool(torch.isfinite(leaf).all())]


def _check_envelope(envelope: bytes, origin: Origin) -> None:
    if envelope == origin.envelope:
        return
    mark, membership, sender, round = _ENVELOPE.unpack(envelope)
    if mark != _MARK or membership != origin.membership:
        raise RefusedError(Reason.OTHER_FEDERATION)
    if sender != origin.sender:
        raise RefusedError(Reason.OTHER_SENDER, f"it is a message of node {sender}")
    raise RefusedError(Reason.OTHER_ROUND, f"it is of round {round}, round {origin.round} was asked for")


def _norm(entry: Any) -> float:
    """Euclidean norm of all floating-point numbers of an entry; 0 if there are none."""
    leaves: list[Tensor] = [leaf for leaf in tree.flatten(entry).values() if leaf.is_floating_point()]
    return float(torch.stack([leaf.double().norm() for leaf in leaves]).norm()) if leaves else 0.0
