"""The connection to a Ray cluster: one on this machine for the time of a run, or one that exists."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from facade.errors import ExperimentError, need
from facade.learning.machine import cores
from facade.runtimes.ray.errors import ClusterError
from facade.runtimes.ray.private_directory import close_to_others, private_directory


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

    with private_directory() if address is None else contextlib.nullcontext() as files:
        if files is not None:
            options["_temp_dir"] = str(files)  # what Ray leaves goes with it
        try:
            with _deaf_to_hangups() if address is None else contextlib.nullcontext():
                ray.init(**options)
        except Exception as error:  # Ray raises many kinds, Exception itself if it takes too long to start
            raise ClusterError(_why_not_connected(error, address, ray.exceptions.AuthenticationError)) from error
        try:
            if files is not None:
                close_to_others(files)
            _warn_if_exposed()
            yield
        finally:
            ray.shutdown()


def _why_not_connected(error: Exception, address: str | None, authentication: type[Exception]) -> str:
    """What to tell somebody whom Ray does not let in, or for whom it does not start; `authentication` is Ray's kind of
    error where a token is missing. Where it is wrong, others are raised that came of such a one, or quote it."""
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if address is None:
        return f"a Ray cluster could not be started here ({reason})"
    remedy = "set RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH to the cluster's"
    if isinstance(error, authentication):
        return (
            f"the Ray cluster at {address} and this process have no token in common; {remedy}, or"
            " RAY_AUTH_MODE=disabled if it was started without one"
        )
    if any(isinstance(cause, authentication) or authentication.__name__ in str(cause) for cause in _causes(error)):
        return f"the Ray token of this process is wrong: the cluster at {address} has another one; {remedy}"
    return (
        f"no Ray cluster at {address} that this machine is part of ({reason}); give the command on a machine of the"
        " cluster, one on which `ray start` ran"
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    """What an error came of, as far as it says."""
    cause = error.__cause__ or error.__context__
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


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


def _set_environment(address: str | None) -> None:
    """What Ray reads from the environment, when it is first imported: a token for everybody who connects,
    and no usage reports. What the user has set stays."""
    if address is None:
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # on any system: stay on 127.0.0.1
        if "RAY_AUTH_TOKEN_PATH" not in os.environ:
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    else:
        os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "5")  # a second each; a wrong token is wrong every time
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
