"""Where a site is called, and where the server behind its acceptor is."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import socket
import tempfile
import time
from pathlib import Path

from facade.errors import ExperimentError

SERVER = "server"
"""The name of the socket of the server behind, in a private directory."""
_PREFIX = "facade-node-"
_LONGEST_PATH = 80
"""Bytes; a socket's path has at most 103 everywhere, with its name."""
_OLD = 600.0
"""Seconds."""


def private_directory() -> Path:
    """A new directory that only this user can enter; what processes left that were killed is removed. Not one of
    the site's: a socket's path cannot be long, and not every file system has sockets."""
    try:
        for earlier in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
            if _is_left_over(earlier):
                shutil.rmtree(earlier, ignore_errors=True)
        made = Path(tempfile.mkdtemp(prefix=_PREFIX))
    except OSError as error:
        raise ExperimentError(f"no directory for a socket can be made: {error}; set TMPDIR to one for this") from None
    if len(os.fsencode(made)) > _LONGEST_PATH:
        made.rmdir()
        raise ExperimentError(
            f"{made} is too long for the path of a socket; set TMPDIR to a directory of at most"
            f" {_LONGEST_PATH - len(made.name) - 1} bytes"
        )
    return made


def _is_left_over(directory: Path) -> bool:
    """Whether nobody listens there any more. One that is new may belong to a process that is about to."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as tried:
        found = directory.lstat()
        tried.setblocking(False)
        is_old = time.time() - found.st_mtime > _OLD
        return (
            is_old and found.st_uid == os.getuid() and tried.connect_ex(str(directory / SERVER)) == errno.ECONNREFUSED
        )
    return False


def listeners(listen: str, shared: bool) -> list[socket.socket]:
    """Sockets that listen at all addresses of host:port; ExperimentError if there is none that can."""
    host, _, port = listen.rpartition(":")
    opened, says = [], ""
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, ValueError) as error:
        found, says = [], getattr(error, "strerror", None) or str(error)
    for family, where in dict.fromkeys((family, where) for family, *_, where in found):
        try:
            opened.append(_listener(family, where, shared))
        except OSError as error:
            says = error.strerror or str(error)
    if not opened:
        raise ExperimentError(
            f"{listen} cannot be listened on: {says}; is another node running there, and is the address one of this"
            " machine?"
        )
    return opened


def _listener(family: int, where: tuple[object, ...], shared: bool) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6 and where[0] == "::":
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(where)
        listener.listen(socket.SOMAXCONN)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener
