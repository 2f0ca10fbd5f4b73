"""One connection that is passed on, byte for byte: from a caller to the server behind, and back."""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
from collections.abc import Hashable

from facade.peers.protocol.allowance import Allowance

_AT_ONCE = 1 << 18
"""Bytes that are read at once; no more than these are kept for one who does not take them."""
_RESET = struct.pack("ii", 1, 0)
"""For SO_LINGER: close at once, and keep nothing of the connection in the kernel."""


class _Way:
    """One direction."""

    def __init__(self, source: socket.socket, target: socket.socket) -> None:
        self.source = source
        self.target = target
        self.left = memoryview(b"")
        """Read, and not yet taken by the target; nothing more is read meanwhile."""
        self.ended = False

    def move(self, buffer: memoryview) -> None:
        """Pass on what is there; OSError where one end is broken."""
        with contextlib.suppress(BlockingIOError):
            if self.left:
                self.left = self.left[self.target.send(self.left) :]
            if self.left or self.ended:
                return
            count = self.source.recv_into(buffer)
            self.ended = not count
            sent = 0
            try:
                sent = self.target.send(buffer[:count]) if count else 0
            finally:
                self.left = memoryview(bytes(buffer[sent:count]))


class Connection:
    """A caller's connection. It has no way to the server before it says something."""

    def __init__(self, number: int, caller: socket.socket, address: str, ends_at: float) -> None:
        caller.setblocking(False)
        self.number = number
        self.caller = caller
        self.address = address
        """Of the caller, without its port."""
        self.ends_at = ends_at
        """When it is closed if nobody has proved by then to be a member; once it has ended, in any case."""
        self.held_until = 0.0
        """Nothing is read from the caller before that moment."""
        self.is_due = False
        """Whether it has been told when its first words are passed on."""
        self.member: Hashable = None
        self.calls: Allowance | None = None
        """What a member may ask over it."""
        self.server: socket.socket | None = None
        self._in: _Way | None = None
        self._out: _Way | None = None

    def connect(self, path: str, own_name: str) -> None:
        """Open the way to the server, under a name that tells connections apart; OSError if that is not possible."""
        self.caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            server.setblocking(False)
            server.bind(own_name)
            server.connect(path)
        except OSError:
            server.close()
            raise
        self.server = server
        self._in, self._out = _Way(self.caller, server), _Way(server, self.caller)

    def move(self, buffer: memoryview, now: float) -> bool:
        """Pass on what is there in both directions; whether the connection goes on."""
        if self._in is None or self._out is None:
            return True
        try:
            if now >= self.held_until:
                self._in.move(buffer)
            self._out.move(buffer)
        except (OSError, MemoryError):
            return False
        return not self._in.ended and not (self._out.ended and not self._out.left)

    @property
    def is_ending(self) -> bool:
        """Whether the server has hung up, and the caller has yet to take its last words."""
        return self._out is not None and self._out.ended

    def wanted(self, now: float) -> list[tuple[socket.socket, int]]:
        """Both sockets, with the events to wait for; 0 for none."""
        held = now < self.held_until
        if self._in is None or self._out is None:
            return [(self.caller, 0 if held else selectors.EVENT_READ)]
        return [
            (self.caller, _events(self._in.left or held, self._out.left)),
            (self._out.source, _events(self._out.left or self._out.ended, self._in.left)),
        ]

    def close(self, reset: bool = False) -> None:
        """Hang up on both sides; with `reset` so that the kernel keeps nothing of it, and what was sent may be lost."""
        if reset:
            with contextlib.suppress(OSError):
                self.caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.caller.close()
        if self.server is not None:
            self.server.close()


def new_buffer() -> memoryview:
    """What all connections of a thread are read into."""
    return memoryview(bytearray(_AT_ONCE))


def _events(does_not_read: object, writes: object) -> int:
    return (0 if does_not_read else selectors.EVENT_READ) | (selectors.EVENT_WRITE if writes else 0)
