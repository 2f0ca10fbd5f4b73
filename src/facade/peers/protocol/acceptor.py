"""What stands between the open network and gRPC: connections are taken by a thread of this process, and passed on to
gRPC byte for byte once their caller has said something. So strangers can use up neither the descriptors of the process
nor the places of members:

* Few connections may be open of which nobody knows yet whose they are. Where there is one too many, the one is closed
  that has been silent for longest, of the address that has most of them: a flood puts itself out, and a member that
  connects meanwhile is let in.
* A connection is a member's from the first call on that the gate admits. Who has not come so far in time is closed.
* A member has a few connections; one too many is closed. From one over which it calls too often, nothing is read for
  a while: that costs less than any answer.
* An address may begin some handshakes a second, for they cost much; later ones wait.

gRPC's own limits know no difference between members and strangers. Its socket is in a directory that only this user
can enter; TLS is between the caller and gRPC, and nothing is read here.
"""

from __future__ import annotations

import contextlib
import functools
import selectors
import socket
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Hashable
from pathlib import Path

from facade.peers.protocol.allowance import Allowance
from facade.peers.protocol.connection import Connection, new_buffer
from facade.peers.protocol.listening import SERVER, listeners

PROOF_SECONDS = 20.0
"""In which a caller must have proved to be a member: as long as `rpc.Link` gives a connection at least."""
MOST_OF_A_MEMBER = 4
"""Connections for every study: of a node, of its doctor, and of those before a restart."""
HANDSHAKES = 20.0
"""A second, of one address."""
CALLS, CALLS_AT_ONCE = 100.0, 200
"""Over one connection: a second, and how many more after a quiet time. With a MiB each they carry 800 Mbit/s."""
_AT_ONCE = 128
"""Connections that are taken before others are served again."""
_REST = 0.5
"""Seconds without taking connections where the system has no descriptor for one."""
_SHORT_REST = 0.02
"""The same where there were more than places: in a flood the thread is awake now and then, not all the time."""
_TICK = 0.2
_MINUTE = 60.0
_MOST_ADDRESSES = 1024
"""Of which it is remembered how many handshakes they have begun, or that a member has called from there."""


class Acceptor:
    """Listens at host:port. `start` when the server behind listens in the directory `inner`."""

    def __init__(self, listen: str, shared: bool, inner: Path, places: int, at_once: int) -> None:
        self._inner = inner
        self._places = places
        """For connections of which nobody knows yet whose they are."""
        self._at_once = at_once
        """Handshakes that an address may begin at a time."""
        self.crowded: Callable[[str, int], None] = lambda address, closed: None
        """Told in a flood, at most once a minute: the address with most connections, and how many were closed since."""
        self._closed, self._told_at = 0, -_MINUTE
        self._listeners = listeners(listen, shared)
        self.port: int = self._listeners[0].getsockname()[1]
        self._connections: dict[int, Connection] = {}
        self._unproven: dict[int, Connection] = {}
        """In the order in which they came; nobody knows yet whose they are."""
        self._of_address: defaultdict[str, dict[int, Connection]] = defaultdict(dict)
        """The same, by the caller's address."""
        self._held: dict[int, Connection] = {}
        self._handshakes: dict[str, Allowance] = {}
        """By address."""
        self._known: dict[str, None] = {}
        """Addresses that members have called from lately, the oldest first."""
        self._buffer = new_buffer()
        self._selector = selectors.DefaultSelector()
        self._number = 0
        self._rests_until: float | None = None
        self._lock = threading.Lock()
        """For what members may still ask."""
        self._orders: deque[Callable[[], None]] = deque()
        """From other threads."""
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)
        self._woken.setblocking(False)
        self._ends_at: float | None = None
        self._thread = threading.Thread(target=self._run, name="facade-accept", daemon=True)

    def start(self) -> None:
        """Let callers in."""
        self._selector.register(self._woken, selectors.EVENT_READ, self._take_orders)
        self._listen(True)
        self._thread.start()

    def close_port(self) -> None:
        """Let nobody in any more; connections stay."""
        if self._thread.is_alive():
            self._order(functools.partial(self._listen, False))
        else:
            self._free_port()

    def stop(self, seconds: float = 1.0) -> None:
        """Pass on what the server has said before it hung up, at most so long, and end."""
        self.close_port()
        if self._thread.is_alive():
            self._order(functools.partial(setattr, self, "_ends_at", time.monotonic() + seconds))
            self._thread.join()
        self._selector.close()
        self._wake.close()
        self._woken.close()

    def note_call(self, peer: str, member: Hashable, studies: int = 1) -> None:
        """A member of so many studies calls over a connection, which gRPC names `peer`: it is that member's from now
        on. Where more calls come than should, nothing is read from the connection for a while."""
        connection = self._connections.get(_number(peer))
        if connection is None:
            return
        now = time.monotonic()
        with self._lock:
            if connection.calls is None:
                connection.calls = Allowance(CALLS, CALLS_AT_ONCE, now)
                self._order(functools.partial(self._admit, connection, member, studies))
            ahead = connection.calls.take(now)
        if ahead:
            self._order(functools.partial(self._hold, connection, now + ahead))

    def _order(self, order: Callable[[], None]) -> None:
        self._orders.append(order)
        with contextlib.suppress(OSError):  # it is full, so it will wake up; or closed, and there is nothing to do
            self._wake.send(b"x")

    # All that follows is done by the thread alone.

    def _run(self) -> None:
        try:
            while self._ends_at is None or (self._connections and time.monotonic() < self._ends_at):
                for key, _ in self._selector.select(self._patience()):
                    key.data()
                self._look_at_the_clock()
        finally:
            self._free_port()
            for connection in list(self._connections.values()):
                self._close(connection)

    def _patience(self) -> float | None:
        """Seconds after which the clock is to be looked at."""
        if self._rests_until is not None:
            return max(0.0, min(_TICK, self._rests_until - time.monotonic()))
        if self._held:
            return max(0.0, min(_TICK, min(c.held_until for c in self._held.values()) - time.monotonic()))
        return _TICK if self._unproven or self._ends_at is not None else None

    def _take_orders(self) -> None:
        with contextlib.suppress(OSError):
            self._woken.recv(1 << 12)
        while self._orders:
            self._orders.popleft()()

    def _listen(self, open: bool) -> None:
        """Begin, or cease, to take connections."""
        if not open:
            self._free_port()
        for listener in self._listeners:
            self._selector.register(listener, selectors.EVENT_READ, functools.partial(self._accept, listener))

    def _free_port(self) -> None:
        for listener in self._listeners:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(listener)
            listener.close()
        self._listeners = []

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            try:
                caller, address = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                break
            except OSError:  # no descriptor, or no memory: it would be asked for again and again
                self._make_room(self._places // 2)
                self._rest(_REST)
                return
            now = time.monotonic()
            self._number += 1
            connection = Connection(self._number, caller, str(address[0]), now + PROOF_SECONDS)
            self._connections[connection.number] = connection
            self._doubt(connection)
            self._watch(connection, now)
        if self._make_room(self._places):
            self._rest(_SHORT_REST)

    def _rest(self, seconds: float) -> None:
        if self._rests_until is None:
            for listener in self._listeners:
                self._selector.unregister(listener)
        self._rests_until = time.monotonic() + seconds

    def _doubt(self, connection: Connection) -> None:
        """Count a connection among those of which nobody knows whose they are."""
        self._unproven[connection.number] = connection
        self._of_address[connection.address][connection.number] = connection

    def _doubt_no_more(self, connection: Connection) -> bool:
        """The opposite; whether it was among them."""
        theirs = self._of_address[connection.address]
        theirs.pop(connection.number, None)
        if not theirs:
            self._of_address.pop(connection.address)
        return self._unproven.pop(connection.number, None) is not None

    def _make_room(self, places: int) -> bool:
        """Close connections of which nobody knows whose they are until no more are left than there are places; whether
        there were any too many."""
        crowded = len(self._unproven) > places
        while len(self._unproven) > places:
            most = max(self._of_address, key=lambda who: (len(self._of_address[who]), who not in self._known))
            theirs = list(self._of_address[most].values())
            self._closed += 1
            if time.monotonic() - self._told_at >= _MINUTE:
                self.crowded(most, self._closed)
                self._closed, self._told_at = 0, time.monotonic()
            silent = (connection for connection in theirs if connection.server is None)
            self._close(next(silent, theirs[0]), reset=True)
        return crowded

    def _serve(self, connection: Connection) -> None:
        """Something can be read from, or written to, a connection."""
        now = time.monotonic()
        if connection.number not in self._connections:  # closed a moment ago
            return
        if connection.server is None and not self._pass_on(connection, now):
            return
        if connection.move(self._buffer, now):
            if connection.is_ending and connection.number not in self._unproven:
                connection.ends_at = now + PROOF_SECONDS
                self._doubt(connection)
            self._watch(connection, now)
        else:
            self._close(connection)

    def _pass_on(self, connection: Connection, now: float) -> bool:
        """Connect a caller that says something with the server; whether that is done by now."""
        if not connection.is_due:
            delay = self._handshake(connection.address, now)
            if delay is None:
                self._close(connection, reset=True)
                return False
            connection.is_due = True
            if delay:
                self._hold(connection, now + delay)
                return False
        name = self._inner / str(connection.number)
        try:
            connection.connect(str(self._inner / SERVER), str(name))
        except OSError:
            self._close(connection, reset=True)
            return False
        finally:
            with contextlib.suppress(OSError):
                name.unlink()
        return True

    def _handshake(self, address: str, now: float) -> float | None:
        """The seconds after which an address may begin a handshake; None if that is too late."""
        if len(self._handshakes) > _MOST_ADDRESSES:
            self._handshakes = {who: of for who, of in self._handshakes.items() if not of.is_full(now)}
        allowance = self._handshakes.setdefault(address, Allowance(HANDSHAKES, self._at_once, now))
        return allowance.take(now, PROOF_SECONDS / 2)

    def _admit(self, connection: Connection, member: Hashable, studies: int) -> None:
        if not self._doubt_no_more(connection):
            return
        connection.member = member
        self._known.pop(connection.address, None)
        self._known[connection.address] = None
        if len(self._known) > _MOST_ADDRESSES:
            self._known.pop(next(iter(self._known)))
        if sum(other.member == member for other in self._connections.values()) > MOST_OF_A_MEMBER * studies:
            self._close(connection, reset=True)

    def _hold(self, connection: Connection, until: float) -> None:
        """Read nothing from a connection until a moment."""
        if connection.number in self._connections:
            connection.held_until = max(until, connection.held_until)
            self._held[connection.number] = connection
            self._watch(connection, time.monotonic())

    def _watch(self, connection: Connection, now: float) -> None:
        """Wait for what a connection needs next."""
        for end, events in connection.wanted(now):
            before = self._selector.get_map().get(end)
            try:
                if before is None and events:
                    self._selector.register(end, events, functools.partial(self._serve, connection))
                elif before is not None and not events:
                    self._selector.unregister(end)
                elif before is not None and before.events != events:
                    self._selector.modify(end, events, before.data)
            except OSError:  # the kernel has no memory for one more
                self._close(connection, reset=True)
                return

    def _look_at_the_clock(self) -> None:
        now = time.monotonic()
        for connection in [held for held in self._held.values() if held.held_until <= now]:
            self._held.pop(connection.number)
            self._watch(connection, now)
        for connection in [late for late in self._unproven.values() if late.ends_at <= now]:
            self._close(connection, reset=True)
        if self._rests_until is not None and self._rests_until <= now:
            self._rests_until = None
            self._listen(True)

    def _close(self, connection: Connection, reset: bool = False) -> None:
        for end in (connection.caller, connection.server):
            if end is not None and end in self._selector.get_map():
                self._selector.unregister(end)
        connection.close(reset)
        self._doubt_no_more(connection)
        self._held.pop(connection.number, None)
        self._connections.pop(connection.number, None)


def _number(peer: str) -> int:
    """Of the connection that gRPC names so; 0 for none."""
    name = peer.rpartition("/")[2]
    return int(name) if name.isdecimal() else 0
