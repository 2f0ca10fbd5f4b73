"""The same bytes over mutual TLS and nothing else: Python's `ssl`, sent from memory, received into memory."""

from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path

from facade.peers.trust import identity


class PlainTls:
    """One of several who send each other messages of `size` bytes, with the key and certificate of a site."""

    def __init__(self, home: Path, trusted: str, size: int) -> None:
        self._files = home / identity.CERTIFICATE, home / identity.TLS_KEY
        self._trusted = trusted
        self._content = memoryview(bytes(size))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._peers: list[ssl.SSLSocket] = []
        _begin(self._take_callers)

    def connect(self, ports: list[int]) -> None:
        """Open a connection to each of the others."""
        context = self._context(ssl.PROTOCOL_TLS_CLIENT)
        self._peers = [context.wrap_socket(socket.create_connection(("127.0.0.1", port))) for port in ports]

    def hear(self) -> None:
        """Have all others send a message, at the same time."""
        for thread in [_begin(self._pull, peer) for peer in self._peers]:
            thread.join()

    def _pull(self, peer: ssl.SSLSocket) -> None:
        peer.sendall(b"x")
        into, come = memoryview(bytearray(len(self._content))), 0
        while come < len(into):
            come += peer.recv_into(into[come:])

    def _context(self, protocol: int) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(*self._files)
        context.load_verify_locations(cadata=self._trusted)
        return context

    def _take_callers(self) -> None:
        context = self._context(ssl.PROTOCOL_TLS_SERVER)
        while True:
            _begin(self._serve, context, self._listener.accept()[0])

    def _serve(self, context: ssl.SSLContext, caller: socket.socket) -> None:
        with context.wrap_socket(caller, server_side=True) as secured:
            while secured.recv(1):
                secured.sendall(self._content)


def _begin(body: object, *given: object) -> threading.Thread:
    thread = threading.Thread(target=body, args=given, daemon=True)  # type: ignore[arg-type]
    thread.start()
    return thread
