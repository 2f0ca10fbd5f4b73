"""The connection to a Ray cluster: one on this machine for the time of a run, or one that exists."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from facade.errors import ExperimentError, FacadeError, need
from facade.learning.machine import cores

_SOCKET = "/facade-ray-12345678/session_2026-01-01_00-00-00_000000_1234567/sockets/plasma_store.1"
"""The longest name that Ray gives a socket below the directory for temporary files."""
_LONGEST = 103
"""Bytes that every system takes as the path of a socket."""


class ClusterError(FacadeError):
    """The cluster cannot be used, or fails again and again."""


def machines() -> list[dict[str, Any]]:
    """The living machines of the cluster that have CPUs to lend."""
    import ray

    machines = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) > 0]
    if not machines:
        raise ClusterError("the Ray cluster has no machine with CPUs; start one with: ray start")
    return machines


def ids(machines: Iterable[dict[str, Any]]) -> frozenset[str]:
    """Names by which Ray tells machines apart."""
    return frozenset(node["NodeID"] for node in machines)


def cluster_cpus() -> int:
    """CPUs of all living machines."""
    return int(sum(node["Resources"]["CPU"] for node in machines()))


@contextlib.contextmanager
def connected(address: str | None = None) -> Iterator[None]:
    """A connection to the cluster at `address`; without one, a cluster on this machine that nobody else
    can reach, gone afterwards. A connection that exists already is used as it is."""
    options = _options(address)
    imported = sys.modules.get("ray")
    if imported is not None and imported.is_initialized():
        _warn_if_exposed()
        yield
        return
    if imported is not None and "RAY_AUTH_MODE" not in os.environ:  # which Ray has read by now, and never will again
        raise ClusterError(
            "ray was imported before this run, without token authentication; set RAY_AUTH_MODE=token in the"
            " environment, or connect with ray.init() yourself"
        )
    _set_environment(address)
    need("ray", "the Ray runtime", "ray")
    import ray

    with _directory() as files:
        if address is None:
            options["_temp_dir"] = files  # what Ray leaves goes with it
        try:
            with _deaf_to_hangups() if address is None else contextlib.nullcontext():
                ray.init(**options)
        except ray.exceptions.AuthenticationError as error:
            raise ClusterError(
                f"the Ray cluster at {address} and this process have no token in common; set RAY_AUTH_TOKEN or"
                " RAY_AUTH_TOKEN_PATH to the cluster's, or RAY_AUTH_MODE=disabled if it was started without one"
            ) from error
        except Exception as error:  # Ray raises many kinds, Exception itself if it takes too long to start
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            if address is None:
                raise ClusterError(f"a Ray cluster could not be started here ({reason})") from error
            raise ClusterError(
                f"no Ray cluster at {address} that this machine is part of ({reason}); give the command on a machine of"
                " the cluster, one on which `ray start` ran"
            ) from error
        try:
            _warn_if_exposed()
            yield
        finally:
            ray.shutdown()


@contextlib.contextmanager
def _deaf_to_hangups() -> Iterator[None]:
    """Processes that are started inside the with-block outlive a closed terminal: they must be there when the run
    writes its checkpoint. Only the main thread can see to it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def _directory() -> tempfile.TemporaryDirectory[str]:
    """A directory for Ray's files, gone afterwards: below TMPDIR, unless that is too long for Ray's sockets."""
    usual = tempfile.gettempdir()
    where = usual if len(os.fsencode(usual + _SOCKET)) <= _LONGEST else "/tmp"
    try:
        return tempfile.TemporaryDirectory(prefix="facade-ray-", dir=where, ignore_cleanup_errors=True)
    except OSError as error:
        raise ClusterError(
            f"Ray needs a directory below {where}, which cannot be made ({error.strerror}); set TMPDIR to a short"
            " path that can be written"
        ) from error


def _set_environment(address: str | None) -> None:
    """What Ray reads from the environment, when it is first imported: a token for everybody who connects,
    and no usage reports. What the user has set stays."""
    if address is None:
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # on any system: stay on 127.0.0.1
        if "RAY_AUTH_TOKEN_PATH" not in os.environ:
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else it warns about it


def _options(address: str | None) -> dict[str, Any]:
    quiet = {"logging_level": "ERROR"}
    if address is not None:
        _check_reachable(address)
        return {"address": address, **quiet}
    return {"address": "local", "num_cpus": cores(), "include_dashboard": False, **quiet}


def _check_reachable(address: str) -> None:
    """Knock before Ray does, which would go on for minutes."""
    if address == "auto":  # Ray finds the cluster that this machine is part of
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "://" in address:
        raise ExperimentError(
            f"`address` {address}: give the cluster's head as host:port, or 'auto' on one of its machines"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise ClusterError(
            f"nothing answers at `address` {address} ({getattr(error, 'strerror', None) or error});"
            " give the cluster's head as host:port"
        ) from error


def _warn_if_exposed() -> None:
    exposed = [ip for node in machines() if not (ip := node["NodeManagerAddress"]).startswith("127.")]
    if exposed:
        warnings.warn(
            f"this Ray cluster listens beyond the machine itself ({', '.join(sorted(set(exposed)))}): whoever reaches"
            " it with its token can run code there; keep it inside one organisation, behind a firewall",
            stacklevel=2,
        )
