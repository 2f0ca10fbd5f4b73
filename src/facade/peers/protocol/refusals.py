"""Why something a peer sent is not used. Every refusal has one of these reasons; they are counted
and logged by name."""

from __future__ import annotations

import enum


class Reason(enum.IntEnum):
    """The whole list; the numbers travel in replies and never change their meaning."""

    NONE = 0
    # A caller is refused, by the one who was called.
    STRANGER = 1
    EXPIRED = 2
    TOO_LONG = 3
    MALFORMED_REQUEST = 4
    OTHER_MEMBERSHIP = 5
    OTHER_IDENTITY = 6
    NO_SUCH_ROUND = 7
    NOT_ENTITLED = 8
    NO_SUCH_CHUNK = 9
    BUSY = 10
    IGNORED = 20
    """By either side: the operator of the site that refuses has it ignore the other."""
    # A reply or a message is refused, by the one who asked for it.
    MALFORMED_REPLY = 32
    WRONG_SIZE = 33
    WRONG_DIGEST = 34
    OTHER_FEDERATION = 35
    OTHER_SENDER = 36
    OTHER_ROUND = 37
    WRONG_HEADER = 38
    NOT_FINITE = 39
    TOO_LARGE = 40
    UNUSABLE = 41
    EQUIVOCATION = 42
    NOT_ADMITTED = 43
    NEGATIVE_VARIANCE = 44

    @property
    def tells_of_message(self) -> bool:
        """Whether a message came, and was found bad: nobody is suspected because of what never came."""
        return self not in (Reason.NOT_ADMITTED, Reason.IGNORED)

    @property
    def word(self) -> str:
        """As it appears in logs and metrics."""
        return self.name.lower().replace("_", "-")


class RefusedError(Exception):
    """Something a peer sent is not used."""

    def __init__(self, reason: Reason, details: str = "") -> None:
        super().__init__(f"{reason.word}: {details}" if details else reason.word)
        self.reason = reason
        self.details = details
