"""What peers say to each other: one fixed-size request, one fixed-size head of a reply.

Fixed binary fields instead of protobuf: there is one encoding and one length, so a header is either
right or refused, and no generated code or reflection stands between the wire and the checks.
"""

from __future__ import annotations

import dataclasses
import enum
import struct
from dataclasses import dataclass

from facade.peers.protocol.refusals import Reason, RefusedError

LONGEST_REQUEST = 1024
"""Bytes; longer ones never reach a handler."""

_REQUEST = struct.Struct("<4sB3xIQQI32s")
_REPLY = struct.Struct("<4sBB2xQQ32s")
_MARK = b"FCD1"
_DIGEST = 32
"""Bytes of a SHA-256, the last of a request."""


class Kind(enum.IntEnum):
    """What a request is about."""

    PULL = 1
    FAREWELL = 2
    PROBE = 3
    MEASURE = 4


class Status(enum.IntEnum):
    """How a request was answered."""

    HERE = 1
    NOT_YET = 2
    GONE = 3
    REFUSED = 4
    FINISHED = 5
    """The answer to a farewell or a probe of a node that has finished its run itself."""


@dataclass(frozen=True)
class Request:
    """A part of a round's message, please; or: I need nothing more (FAREWELL); or: are you there (PROBE)?
    or: as many empty bytes as a part has, to see how fast they come (MEASURE)."""

    kind: Kind
    membership: bytes
    """SHA-256 of the caller's membership list."""
    caller: int
    round: int
    offset: int = 0
    length: int = 0

    def packed(self) -> bytes:
        """As it travels."""
        return _REQUEST.pack(_MARK, self.kind, self.caller, self.round, self.offset, self.length, self.membership)

    @classmethod
    def parse(cls, content: bytes) -> Request:
        """From the wire; RefusedError if it is not one."""
        if len(content) != _REQUEST.size:
            raise RefusedError(Reason.MALFORMED_REQUEST, f"{len(content)} bytes")
        mark, kind, caller, round, offset, length, membership = _REQUEST.unpack(content)
        if mark != _MARK or kind not in Kind.__members__.values() or any(content[5:8]):
            raise RefusedError(Reason.MALFORMED_REQUEST)
        return cls(Kind(kind), membership, caller, round, offset, length)


def list_named(content: bytes) -> bytes | None:
    """The digest of the list that a request names, and nothing else of it; None for what has not a request's length."""
    return content[-_DIGEST:] if len(content) == _REQUEST.size else None


@dataclass(frozen=True)
class Reply:
    """The answer to a request."""

    status: Status
    round: int
    """The round the answering node is in."""
    reason: Reason = Reason.NONE
    total: int = 0
    """Bytes of the whole message."""
    digest: bytes = bytes(32)
    """SHA-256 of the whole message; in a refusal, that of one's own list, or zeros where it could be one of several."""
    chunk: bytes | memoryview = b""

    def why(self, ours: bytes) -> str:
        """Why a request was refused, in words, given the digest of the caller's list."""
        if self.reason is Reason.OTHER_MEMBERSHIP and not any(self.digest):
            return f"it takes part in nothing by our list, {ours.hex()[:16]}"
        if self.reason is Reason.OTHER_MEMBERSHIP:
            return f"its list is {self.digest.hex()[:16]}, ours {ours.hex()[:16]}"
        return self.reason.word

    def without_list(self) -> Reply:
        """The same refusal, of one who follows several lists."""
        return dataclasses.replace(self, digest=bytes(_DIGEST))

    def packed(self) -> bytes:
        """As it travels."""
        head = _REPLY.pack(_MARK, self.status, self.reason, self.round, self.total, self.digest)
        return b"".join((head, self.chunk))

    @classmethod
    def parse(cls, content: bytes) -> Reply:
        """From the wire; RefusedError if it is not one."""
        if len(content) < _REPLY.size:
            raise RefusedError(Reason.MALFORMED_REPLY, f"{len(content)} bytes")
        mark, status, reason, round, total, digest = _REPLY.unpack_from(content)
        if mark != _MARK or any(content[6:8]):
            raise RefusedError(Reason.MALFORMED_REPLY)
        if status not in Status.__members__.values() or reason not in Reason.__members__.values():
            raise RefusedError(Reason.MALFORMED_REPLY, f"status {status}, reason {reason}")
        chunk = memoryview(content)[_REPLY.size :]
        if chunk and status != Status.HERE:
            raise RefusedError(Reason.MALFORMED_REPLY, "bytes where none belong")
        return cls(Status(status), round, Reason(reason), total, digest, chunk)


LARGEST_REPLY_HEAD = _REPLY.size
