"""The page's server: a few files, and a stream of what changes. It reads nothing unless a browser is there."""

from __future__ import annotations

import contextlib
import functools
import json
import socket
import sys
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs, urlsplit

from facade.errors import ExperimentError
from facade.watch.access import Access, Listen, Refusal
from facade.watch.watching import Watching

MOST_CONNECTIONS, MOST_OF_ONE = 64, 16
"""Open at a time: all, and those of one address."""
_SECONDS = 10.0
"""In which a request must have come, and what is sent must be taken."""
_BEAT = 4.0
"""Seconds between two signs of life."""
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
_SCRIPTS = ("page.js", "charts.js", "graph.js", "sites.js", "words.js")
_FILES = {"/": "page.html", "/page.css": "page.css", **{f"/{name}": name for name in _SCRIPTS}}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
    " img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class PageServer(ThreadingHTTPServer):
    """Answers browsers, a thread each, until it is stopped."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 32

    def __init__(self, listen: Listen, watching: Watching, token: str = "") -> None:
        self.address_family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
        self.watching = watching
        self.stopping = threading.Event()
        self._lock = threading.Lock()
        self._open: dict[Any, str] = {}
        """Connections, and the addresses that they are of."""
        self._unread: dict[Any, float] = {}
        """Those whose request has not come yet, and since when."""
        try:
            super().__init__((listen.host, listen.port), _Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ExperimentError(
                f"{listen.host}:{listen.port} cannot be listened on ({reason}); give another one:"
                " facade watch --listen HOST:PORT"
            ) from None
        self.access = Access(Listen(listen.host, self.server_address[1]), token)

    def server_bind(self) -> None:
        """Without looking up the machine's name, which may take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    @property
    def url(self) -> str:
        """What to open in a browser."""
        host = socket.gethostname() if self.access.listen.is_any else self.access.listen.host
        address = f"http://{f'[{host}]' if ':' in host else host}:{self.access.listen.port}/"
        return address + (f"?token={self.access.token}" if self.access.token else "")

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            of_one = list(self._open.values()).count(client_address[0])
            room = len(self._open) < MOST_CONNECTIONS and of_one < MOST_OF_ONE
            if room:
                self._open[request] = client_address[0]
                self._unread[request] = time.monotonic()
        if room:
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def was_read(self, request: Any) -> None:
        """A request has come."""
        with self._lock:
            self._unread.pop(request, None)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
            self._unread.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Close connections that say nothing, or too slowly."""
        now = time.monotonic()
        with self._lock:
            slow = [request for request, since in self._unread.items() if now - since > _SECONDS]
        for request in slow:
            with contextlib.suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that has gone is no error."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def stop(self) -> None:
        """Tell all browsers what has changed at last, and that it is over; then close."""
        self.stopping.set()
        deadline = time.monotonic() + 2.0
        while self._open and time.monotonic() < deadline:
            self.stopping.wait(0.0)
            time.sleep(0.02)
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    """One request."""

    server: PageServer
    timeout = _SECONDS

    def version_string(self) -> str:
        return "facade"

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nobody reads it, and addresses may hold a token."""

    def parse_request(self) -> bool:
        came = super().parse_request()
        self.server.was_read(self.request)
        return came

    def do_GET(self) -> None:
        """Answer with a file, or the stream."""
        asked = urlsplit(self.path)
        try:
            query = parse_qs(asked.query, max_num_fields=8)
        except ValueError:
            query = {}
        refusal = self.server.access.refusal(self.headers, query)
        if refusal is not None:
            self._refuse(refusal)
        elif asked.path == "/events":
            self._stream()
        elif asked.path in _FILES:
            self._file(_FILES[asked.path])
        else:
            self._refuse(Refusal(HTTPStatus.NOT_FOUND, "there is nothing here"))

    do_HEAD = do_GET  # noqa: N815

    def _refuse_method(self) -> None:
        self._refuse(Refusal(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are answered"))

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_CONNECT = do_TRACE = _refuse_method  # noqa: N815

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What is no request, in a sentence."""
        self._refuse(Refusal(HTTPStatus(code), "this request is not understood"))

    def _refuse(self, refusal: Refusal) -> None:
        self.close_connection = True
        more = {"Allow": "GET, HEAD"} if refusal.status is HTTPStatus.METHOD_NOT_ALLOWED else {}
        self._send(refusal.status, "text/plain", f"{refusal.sentence}\n".encode(), more)

    def _file(self, name: str) -> None:
        access, more = self.server.access, {}
        if access.token and name == "page.html":
            more["Set-Cookie"] = f"{access.cookie}={access.token}; HttpOnly; SameSite=Strict; Path=/"
        self._send(HTTPStatus.OK, _TYPES[name.rpartition(".")[2]], _content(name), more)

    def _send(self, status: HTTPStatus, kind: str, content: bytes, more: dict[str, str]) -> None:
        self._begin(status, kind, {"Content-Length": str(len(content)), **more})
        if self.command != "HEAD":
            self.wfile.write(content)

    def _begin(self, status: HTTPStatus, kind: str, more: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": f"{kind}; charset=utf-8", **_HEADERS, **more}.items():
            self.send_header(name, value)
        self.end_headers()

    def _stream(self) -> None:
        """Send all there is, and then what changes, until somebody goes."""
        self._begin(HTTPStatus.OK, "text/event-stream", {})
        if self.command == "HEAD":
            return
        watching, version, beat = self.server.watching, 0, 0.0
        while True:
            over = self.server.stopping.is_set()
            changes = watching.changes(version, at_once=over)
            version = changes.version
            if changes.content:
                self._tell("state", changes.content)
            if time.monotonic() >= beat:
                self._tell("beat", json.dumps({"now": time.time()}))
                beat = time.monotonic() + _BEAT
            if over:
                self._tell("over", "{}")
                return
            self.server.stopping.wait(min(watching.pause, _BEAT))

    def _tell(self, event: str, content: str) -> None:
        self.wfile.write(f"event: {event}\ndata: {content}\n\n".encode())


@functools.cache
def _content(name: str) -> bytes:
    return files("facade.watch").joinpath("page", name).read_bytes()
