"""What monitoring asks a node for, over plain HTTP: its metrics, whether it is alive, and whether it is ready."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from facade.errors import ExperimentError

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

Address = tuple[str, int]


class MetricsServer:
    """Answers on one address until it is closed: `/healthz` while the process lives, `/readyz` while its peers can work
    with it (`obstacle` says why they cannot, if they cannot), and everything else with the metrics."""

    def __init__(self, address: Address, registry: CollectorRegistry, obstacle: Callable[[], str]) -> None:
        from prometheus_client import make_wsgi_app

        self._obstacle = obstacle
        self._metrics = make_wsgi_app(registry)
        host, port = address
        kind = _server_of(host)
        try:
            self._server = make_server(host, port, self._answer, kind, handler_class=_Quiet)
        except (OSError, OverflowError) as error:
            raise ExperimentError(
                f"metrics cannot be served at {host}:{port} ({error}); choose another metrics_listen in node.toml"
            ) from None
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    @property
    def address(self) -> Address:
        """Where it listens."""
        host, port = self._server.server_address[:2]
        return str(host), int(port)

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        match environ.get("PATH_INFO"):
            case "/healthz":
                obstacle = ""
            case "/readyz":
                obstacle = self._obstacle()
            case _:
                answer: Iterable[bytes] = self._metrics(environ, start_response)
                return answer
        status = "503 Service Unavailable" if obstacle else "200 OK"
        start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{obstacle or 'ok'}\n".encode()]

    def close(self) -> None:
        """Free the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _ThreadingServer(ThreadingMixIn, WSGIServer):
    """One thread a request, so that a caller who says nothing keeps nobody else waiting."""

    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    timeout = 10  # seconds that a silent caller is listened to

    def log_message(self, format: str, *args: Any) -> None:
        """The log is for what peers do."""


def _server_of(host: str) -> type[_ThreadingServer]:
    """The kind of server for an address: of IPv6 if it has colons."""
    import socket

    if ":" not in host:
        return _ThreadingServer

    class OverIPv6(_ThreadingServer):
        address_family = socket.AF_INET6

    return OverIPv6
