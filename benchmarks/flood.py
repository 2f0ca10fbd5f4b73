"""What floods do to a small network of real sites, each a process of its own, over mutual TLS on this machine.

    python benchmarks/flood.py strangers --seconds 20
    python benchmarks/flood.py strangers --seconds 20 --hard 1024
    python benchmarks/flood.py member --seconds 20

strangers: 10,000 connections that say nothing, from another address, to one of three sites, whose processes may have
1,024 descriptors (and may allow themselves more, unless --hard is given). As the site closes them, others are opened,
--rate a second. Meanwhile another member is killed and started again.

member: one of the members calls a site as fast as it can, by 32 threads, beside
its own site, which plays on.

Printed are the seconds of a round (95th percentile over all sites) before the flood, in it, and in a control, how many
processes ended, and after how many seconds the restarted member was heard. A flood takes a processor's time, also where
sites ignore it; so the control does nothing but burn as much of it as the flood's own process did.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import itertools
import json
import multiprocessing
import os
import resource
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from facade import Experiment
from facade.peers.local_network import Processes, founded
from facade.peers.node.journal import lines
from facade.peers.node.node import run
from facade.peers.protocol.headers import Kind, Request
from facade.peers.protocol.refusals import RefusedError
from facade.peers.protocol.rpc import Credentials, Link
from facade.peers.protocol.transport import UnreachableError
from facade.peers.trust.membership import Limits
from facade.peers.trust.site import Site

ELSEWHERE = "127.0.0.2"
"""Where strangers call from."""
DESCRIPTORS = 1024
CALLERS = 32
"""Threads of a flooding member."""
TARGET, RESTARTED, FLOODER = 0, 1, 2
"""Numbers of the sites that are flooded, killed and started again, and whose keys a flooding member has."""


def experiment() -> Experiment:
    """Three sites that play on and on, some rounds a second."""
    return Experiment.of(
        {
            "name": "flood",
            "data": {"source": "digits", "clusters": "2:1"},
            "algorithm": {"name": "facade", "warmup": 1, "seeding": "none"},
            "topology": {"degree": 2},
            "training": {"rounds": 10_000, "steps": 20},
            "evaluation": {"every": 10_000},
            "runtime": {"threads": 1},
        }
    )


def limited_site(home: str, events: Any, soft: int, hard: int) -> None:
    """The body of a site's process that may have so many descriptors; it tells nothing, for nobody listens."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, min(hard, most)))
    run(home, shared_port=True)


def silent_strangers(address: str, count: int, rate: float, seconds: float) -> None:
    """Open connections that say nothing: `count` at once, then `rate` a second in place of those that were closed."""
    host, _, port = address.rpartition(":")
    where, ends, opened = (host, int(port)), time.monotonic() + seconds, []
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    for _ in range(count):
        with contextlib.suppress(OSError):
            opened.append(_stranger(where))
    while time.monotonic() < ends:
        began = time.monotonic()
        for _ in range(int(rate / 10)):
            opened.pop(0).close()
            with contextlib.suppress(OSError):
                opened.append(_stranger(where))
        time.sleep(max(0.0, 0.1 - (time.monotonic() - began)))


def _stranger(where: tuple[str, int]) -> socket.socket:
    silent = socket.socket()
    try:
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        silent.bind((ELSEWHERE, 0))
        silent.setblocking(False)
        silent.connect_ex(where)
    except OSError:
        silent.close()
        raise
    return silent


def flooding_member(home: str, target: int, links: int, kind: Kind, seconds: float) -> None:
    """Call another member as fast as it answers, with the keys of a site, by 32 threads over so many links. Pulls are
    for the round that is being made, so that each is kept waiting in one of the member's few places."""
    site = Site.load(Path(home))
    membership = site.membership()
    number, member = membership.number(site.settings.id), membership.members[target]
    own, ends = Credentials(site.tls_key, site.certificate), time.monotonic() + seconds
    opened = [Link(own, member, membership.limits.chunk) for _ in range(links)]

    def call(link: Link) -> None:
        round = 0
        while time.monotonic() < ends:
            with contextlib.suppress(UnreachableError, RefusedError):
                round = link.call(Request(kind, membership.digest, number, round, 0, 1000), 5).round + 1

    threads = [threading.Thread(target=call, args=(opened[i % links],)) for i in range(CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def burn(share: float, seconds: float) -> None:
    """Take a share of one processor's time, in slices of 20 ms."""
    ends = time.monotonic() + seconds
    while (began := time.monotonic()) < ends:
        while time.monotonic() - began < 0.02 * share:
            pass
        time.sleep(0.02 * (1 - share))


@dataclass
class Measured:
    """What a network did with and without a flood. Times in seconds."""

    before: float
    """95th percentile of a round, without anything."""
    control: float
    """The same while as much of a processor's time was burnt."""
    flood: float
    rounds: int
    """Counted in the flood, over all sites."""
    share: float
    """Of a processor, that the flood's own process took."""
    exits: int
    heard_again: float | None = None
    """From the start of the restarted member's process until the flooded site heard it."""

    @property
    def ratio(self) -> float:
        """How much longer a round took than in the control."""
        return self.flood / self.control


def round_seconds(homes: list[Path], since: datetime.datetime, until: datetime.datetime) -> list[float]:
    """How long rounds took, by the sites' logs; what is left at both ends counts, for a site may stand still."""
    taken = []
    for home in homes:
        moments = [_time(line) for line in lines(home / "run" / "log.jsonl") if line["event"] == "committed"]
        inside = [moment for moment in moments if since <= moment <= until]
        taken += [(after - before).total_seconds() for before, after in itertools.pairwise([since, *inside, until])]
    return taken


def percentile_95(seconds: list[float]) -> float:
    """The value that 95 of 100 do not exceed."""
    return sorted(seconds)[int(0.95 * len(seconds))]


Arguments = Callable[[list[Path]], tuple[Any, ...]]
"""Those of a flood, but for its seconds, in a network of sites."""


def measured(base: Path, flood: Callable[..., None], arguments: Arguments, seconds: float, hard: int) -> Measured:
    """Run the network below `base`: alone, in a flood, with a control; each takes so many seconds."""
    with founded(experiment(), base, "patient", Limits(deadline=120, linger=1)) as sites, Processes([]) as processes:
        limits = (min(DESCRIPTORS, hard), hard)
        for home in sites.homes:
            processes.start(home, limited_site, *limits)
        _await_rounds(sites.homes, 20)
        before = percentile_95(_rounds_during(sites.homes, lambda: time.sleep(seconds)))
        share = 0.0

        def flooding() -> None:
            nonlocal share
            with _process(flood, *arguments(sites.homes), seconds) as process:
                share = _processor_share(process.pid, seconds)

        taken = _rounds_during(sites.homes, flooding)
        with _process(burn, min(1.0, share), seconds):
            control = percentile_95(_rounds_during(sites.homes, lambda: time.sleep(seconds)))
        found = Measured(before, control, percentile_95(taken), len(taken), share, _exits(processes))
        if flood is silent_strangers:
            found.heard_again = _heard_after_restart(sites.homes, processes, limits)
            found.exits = _exits(processes)
        return found


def _heard_after_restart(homes: list[Path], processes: Processes, limits: tuple[int, int]) -> float | None:
    """Kill a member in a flood, start it again, and see how soon the flooded site hears it."""
    home = homes[RESTARTED]
    with _process(silent_strangers, address_of(homes[TARGET]), 10_000, 1000.0, 40.0):
        time.sleep(3)
        os.kill(processes.running[home].pid, signal.SIGKILL)
        processes.running[home].join()
        processes.start(home, limited_site, *limits)
        began = datetime.datetime.now(datetime.UTC)
        while (waited := (datetime.datetime.now(datetime.UTC) - began).total_seconds()) < 35:
            log = reversed(lines(homes[TARGET] / "run" / "log.jsonl"))
            if any(line["event"] == "heard" and line["peer"] == home.name and _time(line) > began for line in log):
                return waited
            time.sleep(0.1)
    return None


def address_of(home: Path) -> str:
    """Where a site listens."""
    return Site.load(home).settings.address


def _exits(processes: Processes) -> int:
    return sum(process.exitcode is not None for process in processes.running.values())


def _await_rounds(homes: list[Path], count: int) -> None:
    for _ in range(600):
        if all(sum(e["event"] == "committed" for e in lines(home / "run" / "log.jsonl")) >= count for home in homes):
            return
        time.sleep(0.1)
    raise RuntimeError("the network did not begin within a minute")


def _rounds_during(homes: list[Path], act: Callable[[], None]) -> list[float]:
    began = datetime.datetime.now(datetime.UTC)
    act()
    return round_seconds(homes, began, datetime.datetime.now(datetime.UTC))


def _time(line: dict[str, Any]) -> datetime.datetime:
    return datetime.datetime.fromisoformat(line["time"])


@contextlib.contextmanager
def _process(body: Callable[..., None], *arguments: Any) -> Iterator[Any]:
    process = multiprocessing.get_context("forkserver").Process(target=body, args=arguments, daemon=True)
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


def _processor_share(pid: int, seconds: float) -> float:
    """Of one processor, that a process takes in so many seconds."""
    before, began = _processor_seconds(pid), time.monotonic()
    time.sleep(seconds - 0.5)
    return (_processor_seconds(pid) - before) / (time.monotonic() - began)


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure one kind of flood and print what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["strangers", "member"])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--rate", type=float, default=1000)
    parser.add_argument("--hard", type=int, default=1 << 16, help="Descriptors that a site may allow itself at most.")
    parser.add_argument("--links", type=int, default=CALLERS, help="That a flooding member calls over.")
    parser.add_argument("--asks", choices=["probe", "pull", "measure"], default="probe")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as base:
        if given.kind == "strangers":
            calls = given.connections, given.rate
            arguments = lambda homes: (address_of(homes[TARGET]), *calls)  # noqa: E731
            found = measured(Path(base), silent_strangers, arguments, given.seconds, given.hard)
        else:
            asks = Kind[given.asks.upper()]
            arguments = lambda homes: (str(homes[FLOODER]), TARGET, given.links, asks)  # noqa: E731
            found = measured(Path(base), flooding_member, arguments, given.seconds, given.hard)
    print(json.dumps(asdict(found) | {"ratio": found.ratio}, indent=1))


if __name__ == "__main__":
    main()
