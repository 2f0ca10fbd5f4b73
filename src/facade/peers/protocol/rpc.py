"""The transport of real sites: gRPC over mutual TLS, synchronous, with threads. Trust is the list of
certificates; no certificate authority and no host name plays a part.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import shutil
import ssl
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import grpc

from facade.errors import ExperimentError
from facade.peers.protocol.acceptor import PROOF_SECONDS, Acceptor
from facade.peers.protocol.descriptors import unproven_places
from facade.peers.protocol.gate import Gate
from facade.peers.protocol.headers import LARGEST_REPLY_HEAD, LONGEST_REQUEST, Reply, Request
from facade.peers.protocol.listening import SERVER, private_directory
from facade.peers.protocol.refusals import RefusedError
from facade.peers.protocol.study_gates import NotPlayedError, StudyGates
from facade.peers.protocol.transport import UnreachableError
from facade.peers.trust import identity
from facade.peers.trust.membership import Member, Membership

_SERVICE = "facade.Peer"
_METHOD = "Call"
_OPTIONS = [
    ("grpc.per_message_decompression", 0),  # nobody here compresses, and a little may unpack to very much
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]


@dataclass(frozen=True)
class Credentials:
    """A node's own key and certificate, PEM."""

    key: bytes
    certificate: bytes


class Server:
    """Answers calls through the gates of a site's studies. The roots it trusts are asked for at every handshake, so a
    new list works without a restart."""

    def __init__(self, gates: StudyGates, own: Credentials, listen: str, shared: bool, members: int = 0) -> None:
        """`members`: how many there are in all lists that are going to be played, if these are not open yet."""
        self._gates = gates
        self._own = own
        self._trusted: bytes = b""
        count = max(members, len(gates.callers))
        with contextlib.ExitStack() as opened:
            inner = private_directory()
            opened.callback(shutil.rmtree, inner, ignore_errors=True)
            self._acceptor = Acceptor(listen, shared, inner, unproven_places(count), 64 + 4 * count)
            opened.callback(self._acceptor.stop)
            self._acceptor.crowded = gates.note_flood
            self.port = self._acceptor.port
            workers = min(4 + 2 * count, 256)
            self._pool = opened.enter_context(ThreadPoolExecutor(workers, "facade-serve"))
            self._server = self._grpc_server(workers)
            credentials = grpc.dynamic_ssl_server_credentials(self._configuration(), self._changed, True)
            try:
                self._server.add_secure_port(f"unix:{inner / SERVER}", credentials)
            except RuntimeError:
                raise ExperimentError(
                    "this site cannot be called: a key or a certificate cannot be used; gRPC says above which"
                ) from None
            self._server.start()
            self._acceptor.start()
            self._opened = opened.pop_all()

    def _grpc_server(self, workers: int) -> grpc.Server:
        server = grpc.server(
            self._pool,
            options=[
                *_OPTIONS,
                ("grpc.max_receive_message_length", LONGEST_REQUEST),
                ("grpc.max_concurrent_streams", 16),
                ("grpc.http2.min_ping_interval_without_data_ms", 20_000),
                ("grpc.http2.min_recv_ping_interval_without_data_ms", 20_000),
                ("grpc.server_handshake_timeout_ms", int(1000 * PROOF_SECONDS)),
            ],
            maximum_concurrent_rpcs=2 * workers,
        )
        # No deserialiser: the bytes of a request reach the gate as they are, after the caller is known.
        handler = grpc.unary_unary_rpc_method_handler(self._call)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, {_METHOD: handler}),))
        return server

    def _configuration(self) -> Any:
        certificates = (pem for member in self._gates.callers for pem in member.certificates)
        self._trusted = "".join(dict.fromkeys(certificates)).encode()
        return grpc.ssl_server_certificate_configuration([(self._own.key, self._own.certificate)], self._trusted)

    def _changed(self) -> Any:
        before = self._trusted
        configuration = self._configuration()
        return None if self._trusted == before else configuration

    def _call(self, content: bytes, context: grpc.ServicerContext) -> bytes:
        try:
            caller = self._gates.admit(_fingerprint(context))
            connection = context.peer()
            self._acceptor.note_call(connection, caller.key, caller.studies)
            if not self._gates.take_place(caller, connection):
                return self._gates.refuse_busy(caller).packed()
            free_place = functools.partial(self._gates.free_place, caller, connection)
            if not context.add_callback(free_place):  # the caller has hung up
                free_place()
            return self._gates.answer(caller, content).packed()
        except RefusedError as refusal:
            code, why = grpc.StatusCode.PERMISSION_DENIED, refusal.reason.word
        except NotPlayedError:  # as if nobody listened
            code, why = grpc.StatusCode.UNAVAILABLE, "not played here at the moment"
        context.abort(code, why)
        raise AssertionError("abort raises")

    def stop(self, seconds: float = 2.0) -> None:
        """Let calls under way end, then free the port."""
        self._acceptor.close_port()
        self._server.stop(seconds).wait()
        self._opened.close()


def _fingerprint(context: grpc.ServicerContext) -> str:
    """SHA-256 of the certificate that the caller proved to own; empty, which nobody's is, where it showed none that can
    be read."""
    shown = context.auth_context().get("x509_pem_cert")
    if not shown:
        return ""
    try:
        der = ssl.PEM_cert_to_DER_cert(shown[0].decode("ascii"))
    except ValueError:
        return ""
    return hashlib.sha256(der).hexdigest()


def _plain(details: str | None) -> str:
    """What gRPC says of a failed call, which may be the other side's own words: one line for a terminal."""
    return "".join(c if c.isprintable() else "?" for c in (details or "")[:300])


class Link:
    """The way to one peer; it connects when it is first used, and again after trouble."""

    def __init__(self, own: Credentials, peer: Member, largest_chunk: int, certificates: Sequence[str] = ()) -> None:
        trusted = "".join(certificates or peer.certificates).encode()
        credentials = grpc.ssl_channel_credentials(trusted, own.key, own.certificate)
        self._channel = grpc.secure_channel(
            peer.address,
            credentials,
            options=[
                *_OPTIONS,
                ("grpc.ssl_target_name_override", identity.tls_name(peer.id)),
                ("grpc.max_receive_message_length", largest_chunk + LARGEST_REPLY_HEAD),
                ("grpc.initial_reconnect_backoff_ms", 100),
                ("grpc.min_reconnect_backoff_ms", 20_000),  # also the shortest time given to a connection
                ("grpc.max_reconnect_backoff_ms", 1_000),
                ("grpc.enable_retries", 0),
                ("grpc.enable_http_proxy", 0),
            ],
        )
        self._call = self._channel.unary_unary(f"/{_SERVICE}/{_METHOD}")

    def call(self, request: Request, seconds: float) -> Reply:
        """One question, one answer; UnreachableError if none comes, RefusedError if it is no reply."""
        try:
            content = self._call(request.packed(), timeout=seconds)
        except grpc.RpcError as error:
            denied = error.code() is grpc.StatusCode.PERMISSION_DENIED
            raise UnreachableError(f"{error.code().name}: {_plain(error.details())}", denied) from None
        except ValueError:  # the channel was closed by another thread
            raise UnreachableError("closed") from None
        return Reply.parse(content)

    def close(self) -> None:
        """Hang up."""
        self._channel.close()


class Links:
    """The ways to all peers, one to each, made when it is needed, and anew where a list names another address
    or other certificates."""

    def __init__(self, own: Credentials, largest_chunk: int, certificates: Callable[[str], list[str]]) -> None:
        self._own = own
        self._largest_chunk = largest_chunk
        self._certificates = certificates
        self._links: dict[str, tuple[tuple[str, ...], Link]] = {}
        """By id, with the address and the certificates that a link was made for."""
        self._lock = threading.Lock()

    def to(self, peer: Member) -> Link:
        """The link to a member at the address of the list, with the certificates that are good now."""
        certificates = self._certificates(peer.id)
        where = peer.address, *certificates
        with self._lock:
            before, link = self._links.get(peer.id, (None, None))
            if link is None or before != where:
                if link is not None:
                    link.close()  # what it connects to is listed no more
                link = Link(self._own, peer, self._largest_chunk, certificates)
                self._links[peer.id] = where, link
            return link

    def close(self) -> None:
        """Hang up on everybody."""
        with self._lock:
            for _, link in self._links.values():
                link.close()
            self._links.clear()


class GrpcTransport:
    """Links and a server of one site. Several studies share it: there is one port, open from the first gate on until
    the last one is closed."""

    def __init__(
        self,
        own: Credentials,
        listen: str,
        shared_port: bool = False,
        not_played: Iterable[Membership] = (),
        members: int = 0,
    ) -> None:
        """`listen`: host:port; `shared_port`: whether others on this machine may hold it as well; `not_played`: lists
        of this site's studies that are not; `members`: how many there are in all lists that are."""
        self._own = own
        self._listen = listen
        self._shared_port = shared_port
        self._members = members
        self._gates = StudyGates(not_played)
        self._server: Server | None = None
        self._lock = threading.Lock()

    def links(self, largest_chunk: int, certificates: Callable[[str], list[str]]) -> Links:
        return Links(self._own, largest_chunk, certificates)

    def serve(self, gate: Gate, callers: Callable[[], list[Member]]) -> OpenGate:
        with self._lock:
            self._gates.add(gate, callers)
            try:
                if self._server is None:
                    self._server = Server(self._gates, self._own, self._listen, self._shared_port, self._members)
            except BaseException:
                self._gates.remove(gate)
                raise
        return OpenGate(self, gate)

    def close_gate(self, gate: Gate) -> None:
        """Answer no calls to a study any more; the last one closes the port first, so that nobody is turned away."""
        with self._lock:
            if self._server is not None and self._gates.is_last(gate):
                self._server.stop()
                self._server = None
            self._gates.remove(gate)


@dataclass(frozen=True)
class OpenGate:
    """A study of a site, open to calls."""

    transport: GrpcTransport
    gate: Gate

    def stop(self) -> None:
        """Let calls under way end; later ones are not answered."""
        self.transport.close_gate(self.gate)
