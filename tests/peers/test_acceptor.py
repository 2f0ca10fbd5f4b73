"""What stands between the network and gRPC, with a bare server behind it in place of gRPC."""

import errno
import os
import socket
import stat
import threading
from contextlib import ExitStack
from tempfile import TemporaryDirectory

import pytest

from facade.errors import ExperimentError
from facade.peers.protocol import acceptor as module
from facade.peers.protocol import listening
from facade.peers.protocol.acceptor import MOST_OF_A_MEMBER, Acceptor
from facade.peers.protocol.allowance import Allowance
from facade.peers.protocol.listening import SERVER, private_directory
from peers.makers import until

PLACES = 8
ELSEWHERE = "127.0.0.2"


class Behind:
    """An acceptor, and the server that it passes callers on to."""

    def __init__(self, opened):
        inner = private_directory()
        self.server = opened.enter_context(socket.socket(socket.AF_UNIX))
        self.server.bind(str(inner / SERVER))
        self.server.listen()
        self.server.settimeout(20)
        self.acceptor = Acceptor("127.0.0.1:0", False, inner, PLACES, 1000)
        opened.callback(self.acceptor.stop)
        self.acceptor.start()
        self.opened = opened

    def call(self, source="127.0.0.1"):
        """A connection that says nothing yet."""
        where = "127.0.0.1", self.acceptor.port
        caller = self.opened.enter_context(socket.create_connection(where, 20, source_address=(source, 0)))
        caller.settimeout(20)
        return caller

    def flood(self, count, source="127.0.0.1"):
        """Connections that say nothing; some may be closed before they are open."""
        opened = []
        for _ in range(count):
            silent = self.opened.enter_context(socket.socket())
            silent.bind((source, 0))
            silent.setblocking(False)
            silent.connect_ex(("127.0.0.1", self.acceptor.port))
            silent.settimeout(20)
            opened.append(silent)
        return opened

    def passed_on(self, caller):
        """The server's end of a connection whose caller says hello, and the name that it has there."""
        caller.sendall(b"hello")
        end, name = self.server.accept()
        self.opened.enter_context(end)
        end.settimeout(20)
        assert end.recv(5) == b"hello"
        return end, f"unix:{name}"

    @property
    def open(self):
        return len(self.acceptor._connections)


@pytest.fixture
def behind():
    with ExitStack() as opened:
        yield Behind(opened)


def is_closed(caller):
    try:
        return caller.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_silent_flood_puts_itself_out_and_others_are_let_in(behind):
    flood = behind.flood(5 * PLACES, ELSEWHERE)
    end, _ = behind.passed_on(behind.call())
    end.sendall(b"welcome")
    assert all(is_closed(silent) for silent in flood[: 4 * PLACES])
    assert behind.open <= PLACES


def test_of_a_flood_it_is_said_once_where_it_comes_from(behind):
    said = []
    behind.acceptor.crowded = lambda *flood: said.append(flood)
    flood = behind.flood(5 * PLACES, ELSEWHERE)
    assert all(is_closed(silent) for silent in flood[: 4 * PLACES])
    assert said == [(ELSEWHERE, 1)]


def test_who_has_said_something_stays_in_a_silent_flood_from_its_own_address(behind):
    caller = behind.call()
    end, _ = behind.passed_on(caller)
    flood = behind.flood(5 * PLACES)
    assert is_closed(flood[0])
    end.sendall(b"still here")
    assert caller.recv(10) == b"still here"


def test_a_member_takes_none_of_the_places_of_strangers(behind):
    members = []
    for number in range(PLACES + 2):
        caller = behind.call()
        end, name = behind.passed_on(caller)
        behind.acceptor.note_call(name, f"m{number}")
        members.append((caller, end))
    flood = behind.flood(3 * PLACES)
    assert is_closed(flood[0])
    for caller, end in members:
        end.sendall(b"x")
        assert caller.recv(1) == b"x"


def test_a_member_has_few_connections_and_keeps_the_first_ones(behind):
    opened = []
    for _ in range(MOST_OF_A_MEMBER + 1):
        caller = behind.call()
        end, name = behind.passed_on(caller)
        behind.acceptor.note_call(name, "b")
        opened.append((caller, end))
    assert is_closed(opened[-1][0])
    for caller, end in opened[:-1]:
        end.sendall(b"x")
        assert caller.recv(1) == b"x"


def test_who_does_not_prove_to_be_a_member_in_time_is_closed(behind):
    silent = behind.call()
    until(lambda: behind.acceptor._unproven)
    for connection in behind.acceptor._unproven.values():
        connection.ends_at = 0.0  # long ago
    assert is_closed(silent)


@pytest.mark.parametrize("rate", [0.01, 20.0])
def test_nothing_is_read_for_a_while_from_a_member_that_calls_too_often(rate, behind, monkeypatch):
    monkeypatch.setattr(module, "CALLS", rate)
    monkeypatch.setattr(module, "CALLS_AT_ONCE", 1)
    caller = behind.call()
    end, name = behind.passed_on(caller)
    for _ in range(2):
        behind.acceptor.note_call(name, "b")
    if rate > 1:
        caller.sendall(b"more")
        assert end.recv(4) == b"more"
        return
    until(lambda: behind.acceptor._held)
    caller.sendall(b"more")
    end.sendall(b"answer")
    assert caller.recv(6) == b"answer", "replies go on"
    end.setblocking(False)
    with pytest.raises(BlockingIOError):
        end.recv(4)


def test_an_address_begins_a_few_handshakes_a_second():
    handshakes = Allowance(rate=2.0, at_once=3, now=0.0)
    assert [handshakes.take(0.0, 1.0) for _ in range(5)] == [0.0, 0.0, 0.0, 0.5, 1.0]
    assert handshakes.take(0.0, 1.0) is None, "later than it may be"
    assert handshakes.take(1.0, 1.0) == 0.5
    assert not handshakes.is_full(2.0)
    assert handshakes.is_full(4.0)


def test_an_address_that_begins_too_many_handshakes_is_closed_and_others_are_not(behind, monkeypatch):
    behind.acceptor._at_once = 1
    monkeypatch.setattr(module, "HANDSHAKES", 0.001)
    behind.passed_on(behind.call(ELSEWHERE))
    refused = behind.call(ELSEWHERE)
    refused.sendall(b"hello")
    assert is_closed(refused)
    behind.passed_on(behind.call())


def test_large_contents_go_through_whole_in_both_directions(behind):
    caller = behind.call()
    end, _ = behind.passed_on(caller)
    there, back = os.urandom(4 << 20), os.urandom(5 << 20)
    senders = [threading.Thread(target=s.sendall, args=(c,)) for s, c in ((caller, there), (end, back))]
    for sender in senders:
        sender.start()
    assert received(end, len(there)) == there
    assert received(caller, len(back)) == back
    for sender in senders:
        sender.join()


def received(end, count):
    content = bytearray()
    while len(content) < count:
        content += end.recv(1 << 16)
    return content


def test_the_last_words_of_the_server_reach_the_caller(behind):
    caller = behind.call()
    end, _ = behind.passed_on(caller)
    last = os.urandom(3 << 20)
    sender = threading.Thread(target=lambda: (end.sendall(last), end.close()))
    sender.start()
    assert received(caller, len(last)) == last
    sender.join()
    assert is_closed(caller)
    until(lambda: behind.open == 0)


def test_a_caller_that_hangs_up_is_gone_for_the_server(behind):
    caller = behind.call()
    end, _ = behind.passed_on(caller)
    caller.close()
    assert end.recv(1) == b""
    until(lambda: behind.open == 0)


def test_without_a_free_descriptor_connections_are_taken_later(behind, monkeypatch):
    accept, failures = socket.socket.accept, [errno.EMFILE, errno.ENFILE]

    def scarce(self):
        if self.family == socket.AF_INET and failures:
            raise OSError(failures.pop(), "too many open files")
        return accept(self)

    monkeypatch.setattr(socket.socket, "accept", scarce)
    behind.passed_on(behind.call())
    assert not failures


def test_an_end_frees_the_port_and_closes_all(behind):
    caller = behind.call()
    end, _ = behind.passed_on(caller)
    end.close()
    behind.acceptor.stop()
    assert is_closed(caller)
    with socket.create_server(("127.0.0.1", behind.acceptor.port)):
        pass


def in_temporary(directory, monkeypatch):
    monkeypatch.setattr(listening.tempfile, "tempdir", str(directory))


def test_the_way_to_the_server_is_private_and_those_of_killed_processes_are_removed(monkeypatch):
    with TemporaryDirectory() as short, ExitStack() as opened:  # a socket's path must be short
        in_temporary(short, monkeypatch)
        left, new, used = (private_directory() for _ in range(3))
        for directory in (left, new, used):
            made = opened.enter_context(socket.socket(socket.AF_UNIX))
            made.bind(str(directory / SERVER))
            if directory is used:
                made.listen()
        for directory in (left, used):
            os.utime(directory, (0, 0))
        assert stat.S_IMODE(private_directory().stat().st_mode) == 0o700
        assert [directory.exists() for directory in (left, new, used)] == [False, True, True]


def test_a_directory_that_cannot_hold_a_socket_is_named(tmp_path, monkeypatch):
    in_temporary(tmp_path / "absent", monkeypatch)
    with pytest.raises(ExperimentError, match=r"no directory for a socket can be made: .*; set TMPDIR"):
        private_directory()
    deep = tmp_path / ("x" * 90)
    deep.mkdir()
    in_temporary(deep, monkeypatch)
    with pytest.raises(ExperimentError, match="is too long for the path of a socket; set TMPDIR"):
        private_directory()
    assert not list(deep.iterdir())
