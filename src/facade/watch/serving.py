"""Starting and ending the page's server."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from facade.errors import ExperimentError
from facade.watch.access import LOOPBACK, Listen, new_token
from facade.watch.server import PageServer
from facade.watch.watching import Watching

PORT = 8765
"""Where the page is unless somebody says otherwise, so that one that is open finds a watcher that starts again."""
_PORTS = 8


def page_server(watching: Watching, listen: str = "", token: str = "") -> PageServer:
    """A server that listens: on this machine alone, or where `listen` (HOST:PORT) says. What others can reach asks for
    a token: the one given, or a new one."""
    if not listen:
        return _on_loopback(watching, token)
    where = Listen.parse(listen)
    return PageServer(where, watching, token if where.is_loopback else token or new_token())


def _on_loopback(watching: Watching, token: str) -> PageServer:
    """On the usual port, or one behind it if that is taken."""
    for port in range(PORT, PORT + _PORTS):
        with contextlib.suppress(ExperimentError):
            return PageServer(Listen(LOOPBACK[0], port), watching, token)
    return PageServer(Listen(LOOPBACK[0], 0), watching, token)


@contextlib.contextmanager
def serving(server: PageServer) -> Iterator[None]:
    """The server answers inside the with-block; at its end browsers get what has changed at last."""
    thread = threading.Thread(target=server.serve_forever, name="facade-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.stop()
        thread.join()
