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
from collections.abc import Callable, Sequence
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
from facade.peers.protocol.refusals import Reason, RefusedError
from facade.peers.protocol.transport import UnreachableError
from facade.peers.trust import identity
from facade.peers.trust.membership import Member

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
    """Answers calls through a gate. The roots it trusts are asked for at every handshake, so a new
    list works without a restart."""

    def __init__(
        self, gate: Gate, own: Credentials, listen: str, members: Callable[[], list[Member]], shared: bool
    ) -> None:
        self._gate = gate
        self._own = own
        self._members = members
        self._trusted: bytes = b""
        count = len(members())
        with contextlib.ExitStack() as opened:
            inner = private_directory()
            opened.callback(shutil.rmtree, inner, ignore_errors=True)
            self._acceptor = Acceptor(listen, shared, inner, unproven_places(count), 64 + 4 * count)
            opened.callback(self._acceptor.stop)
            self._acceptor.crowded = gate.note_flood
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
        self._trusted = "".join(pem for member in self._members() for pem in member.certificates).encode()
        return grpc.ssl_server_certificate_configuration([(self._own.key, self._own.certificate)], self._trusted)

    def _changed(self) -> Any:
        before = self._trusted
        configuration = self._configuration()
        return None if self._trusted == before else configuration

    def _call(self, content: bytes, context: grpc.ServicerContext) -> bytes:
        try:
            id = self._gate.admit(_fingerprint(context))
        except RefusedError as refusal:
            self._gate.refuse("?", refusal)
            context.abort(grpc.StatusCode.PERMISSION_DENIED, refusal.reason.word)
        connection = context.peer()
        self._acceptor.note_call(connection, id)
        if not self._gate.take_place(id, connection):
            return self._gate.refusal(id, RefusedError(Reason.BUSY)).packed()
        if not context.add_callback(functools.partial(self._gate.free_place, id, connection)):  # the caller has hung up
            self._gate.free_place(id, connection)
        return self._gate.answer(id, content).packed()

    def stop(self, seconds: float = 2.0) -> None:
        """Let calls under way end, then free the port."""
        self._acceptor.close_port()
        self._server.stop(seconds).wait()
        self._opened.close()


def _fingerprint(context: grpc.ServicerContext) -> str:
    """SHA-256 of the certificate that the caller proved to own."""
    shown = context.auth_context().get("x509_pem_cert")
    if not shown:
        raise RefusedError(Reason.STRANGER, "no certificate")
    try:
        der = ssl.PEM_cert_to_DER_cert(shown[0].decode("ascii"))
    except ValueError:
        raise RefusedError(Reason.STRANGER, "no readable certificate") from None
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


@dataclass(frozen=True)
class GrpcTransport:
    """Links and a server of one site."""

    own: Credentials
    listen: str
    """host:port"""
    shared_port: bool = False
    """Whether others on this machine may hold the port as well."""

    def links(self, largest_chunk: int, certificates: Callable[[str], list[str]]) -> Links:
        return Links(self.own, largest_chunk, certificates)

    def serve(self, gate: Gate, callers: Callable[[], list[Member]]) -> Server:
        return Server(gate, self.own, self.listen, callers, self.shared_port)
