"""Sites behind links that fail: what they compute is what they compute over good ones.

    python benchmarks/faulty_links.py --kind corrupt

Eight sites, each a process of its own, talk over mutual TLS on this machine: digits, FACADE, policy patient. Calls to a
site pass through a proxy. A share of the connections fail after a random number of bytes: they are reset, closed in the
middle, have one bit changed, or pass nothing on any more and stay open. It prints a line of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import random
import socket
import struct
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from facade import Experiment, run
from facade.peers.after.outcome import Outcome
from facade.peers.local_network import Processes, founded
from facade.peers.trust.membership import Limits
from facade.peers.trust.site import Site

KINDS = ("reset", "closed", "corrupt", "silent")
LONGEST = 60_000
"""Bytes after which a connection that is to fail has failed."""


class FaultyLink:
    """A proxy in front of a site, on the address that the others know."""

    def __init__(self, kind: str, failing: float, seed: int) -> None:
        self._kind = kind
        self._failing = failing
        self._random = random.Random(seed)
        self.faults: Counter[str] = Counter()

    async def serve(self, listed: tuple[str, int], site: tuple[str, int]) -> asyncio.Server:
        """Take connections at the `listed` address and pass them on to the `site`."""

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._pass_on(reader, writer, site)

        taken = socket.socket()
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind(listed)
        return await asyncio.start_server(connected, sock=taken)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, site: tuple[str, int]) -> None:
        left = self._random.randrange(LONGEST) if self._random.random() < self._failing else None
        try:
            its_reader, its_writer = await asyncio.open_connection(*site)
        except OSError:
            writer.transport.abort()
            return
        budget = [left]
        ways = self._one_way(reader, its_writer, budget), self._one_way(its_reader, writer, budget)
        tasks = [asyncio.create_task(way) for way in ways]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if self._kind == "silent" and any(task.result() for task in done):
            await asyncio.wait(tasks)  # the other side says when it has had enough
        for task in tasks:
            task.cancel()
        for each in writer, its_writer:
            if self._kind == "reset":
                taken = each.get_extra_info("socket")
                taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            each.transport.abort() if self._kind == "reset" else each.close()

    async def _one_way(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, budget: list[int | None]
    ) -> bool:
        """Pass bytes on until the connection ends, or fails; whether it failed."""
        with contextlib.suppress(OSError):
            while content := await reader.read(1 << 16):
                left = budget[0]
                if left is not None and left <= len(content):
                    self.faults[self._kind] += 1
                    if self._kind == "silent":
                        while await reader.read(1 << 16):  # taken, and never passed on
                            pass
                        return True
                    if self._kind != "corrupt":
                        writer.write(content[: left // 2])
                        await writer.drain()
                        return True
                    at = self._random.randrange(len(content))
                    content = content[:at] + bytes([content[at] ^ 1 << self._random.randrange(8)]) + content[at + 1 :]
                    left = None
                budget[0] = None if left is None else left - len(content)
                writer.write(content)
                await writer.drain()
        return False


@contextlib.contextmanager
def faulty_links(homes: list[Path], kind: str, failing: float) -> Iterator[list[FaultyLink]]:
    """A faulty link in front of every site."""
    loop, links = asyncio.new_event_loop(), [FaultyLink(kind, failing, seed) for seed in range(len(homes))]
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        for home, link in zip(homes, links, strict=True):
            asyncio.run_coroutine_threadsafe(link.serve(_listed(home), _moved(home)), loop).result()
        yield links
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


def _listed(home: Path) -> tuple[str, int]:
    """The address by which the others know a site."""
    host, port = Site.load(home).settings.address.split(":")
    return host, int(port)


def _moved(home: Path) -> tuple[str, int]:
    """Have a site listen at another address of this machine, and say at which."""
    host, port = "127.0.0.2", _listed(home)[1]
    settings = home / "node.toml"
    settings.write_text(f'listen = "{host}:{port}"\n' + settings.read_text())
    return host, port


def measured(base: Path, kind: str, failing: float, rounds: int) -> dict[str, Any]:
    """Run eight sites behind links that fail in one way; what became of them."""
    experiment = Experiment.of(
        {
            "name": "faulty-links",
            "data": {"source": "digits", "clusters": "6:2"},
            "algorithm": {"name": "facade", "warmup": 1, "seeding": "none"},
            "topology": {"degree": 3},
            "training": {"rounds": rounds, "steps": 1},
            "evaluation": {"every": rounds},
            "runtime": {"threads": 1},
        }
    )
    with founded(experiment, base, "patient", Limits(linger=10)) as made:
        with faulty_links(made.homes, kind, failing) as links, Processes(made.homes) as processes:
            ends = {home.name: event["ended"] for home, event in processes.events() if "ended" in event}
        states = [Outcome.load(home / "run").state_sha256 for home in made.homes]
    combined = hashlib.sha256("".join(states).encode()).hexdigest()
    return {
        "kind": kind,
        "faults": sum(link.faults.total() for link in links),
        "ends": ends,
        "equal": combined == run(experiment).summary["state_sha256"],
    }


def main() -> None:
    """Measure what is asked for, and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=KINDS, default="reset")
    parser.add_argument("--failing", type=float, default=0.75, help="share of the connections that fail")
    parser.add_argument("--rounds", type=int, default=30)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as path:
        print(json.dumps(measured(Path(path) / "sites", given.kind, given.failing, given.rounds)))


if __name__ == "__main__":
    main()
