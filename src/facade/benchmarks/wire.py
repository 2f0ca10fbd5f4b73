"""What messages between sites cost: the exchange of real sites against the same bytes over plain TLS in Python.

Every site is a process of its own on this machine. In turns they hear each other as in a round, with all checks, and
send each other as many bytes over connections at which nobody looks. Then such sites play whole rounds with a model of
that size.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch

from facade.benchmarks.plain_tls import PlainTls
from facade.benchmarks.rounds import pairwise, quartiles, seconds
from facade.core.messages import EVERYONE, Post
from facade.experiment.config import Experiment
from facade.learning.torch_threads import one_intra_op_thread
from facade.peers.local_network import PRELOADED, Founded, Processes, founded
from facade.peers.node.journal import lines
from facade.peers.node.node import Node
from facade.peers.node.node import run as run_site
from facade.peers.node.round_pulls import Demand
from facade.peers.protocol.allocation import keep_freed_chunks
from facade.peers.protocol.rpc import Credentials, GrpcTransport
from facade.peers.protocol.wire import MessageForm
from facade.peers.trust.membership import Limits
from facade.peers.trust.site import Site

SITES = 3
MESSAGE = 40_000_000
"""Bytes."""
_PARTS = 10
"""Tensors of a message."""
_WIDTH = 1_000
MODEL = f"{__name__}:Deep"
"""Of whole rounds."""


def run(quick: bool) -> dict[str, Any]:
    """Plain TLS over the sites' exchange in time and in the processor's time; what a site takes at most, in messages
    (its own and those of the others among them)."""
    size = MESSAGE
    with tempfile.TemporaryDirectory() as base, _sites(Path(base), size) as sites:
        publishing = [seconds(lambda: sites.together("publish")) for _ in range(3)]
        sites.together("hear")  # whatever is done once
        peak = max(sites.together("peak"))
        sites.together("plain")
        cpu: dict[str, list[float]] = {"hear": [], "plain": []}

        def timed(what: str) -> Callable[[], None]:
            def act() -> None:
                before = sum(sites.together("cpu"))
                sites.together(what)
                cpu[what].append(sum(sites.together("cpu")) - before)

            return act

        ratios, hearing, plain = pairwise(timed("hear"), timed("plain"), 2 if quick else 8)
    wire = {
        "plain_over_ours": ratios,
        "plain_over_ours_cpu": quartiles([b / a for a, b in zip(cpu["hear"], cpu["plain"], strict=True)]),
        "hear_seconds": round(hearing, 3),
        "plain_seconds": round(plain, 3),
        "hear_cpu_seconds": round(float(np.median(cpu["hear"])), 3),
        "plain_cpu_seconds": round(float(np.median(cpu["plain"])), 3),
        "publish_seconds": round(float(np.median(publishing)), 3),
        "peak_in_messages": round(peak, 1),
    }
    return {"wire": {"message_bytes": size} | wire | {"whole_rounds": whole_rounds(size, 3)}}


def _experiment(rounds: int, model: str = "softmax") -> Experiment:
    return Experiment.of(
        {
            "name": "wire",
            "data": {"source": "digits", "clusters": f"{SITES - 1}:1"},
            "model": {"name": model},
            "algorithm": {"name": "el"},
            "topology": {"name": "complete"},
            "training": {"rounds": rounds, "steps": 1},
            "evaluation": {"every": rounds},
            "runtime": {"threads": 1},
        }
    )


class _Sites:
    """The sites' processes, by the pipes to them."""

    def __init__(self, pipes: Sequence[Connection]) -> None:
        self._pipes = pipes

    def together(self, what: str) -> list[float]:
        """Have all of them do something at the same time; what each says to it."""
        for pipe in self._pipes:
            pipe.send(what)
        return [pipe.recv() for pipe in self._pipes]


@contextlib.contextmanager
def _sites(base: Path, size: int) -> Iterator[_Sites]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    with founded(_experiment(1_000), base, "patient", Limits()) as made, contextlib.ExitStack() as stack:
        pipes = []
        for home in made.homes:
            ours, theirs = context.Pipe()
            process = context.Process(target=_site, args=(str(home), theirs, size), daemon=True)
            process.start()
            theirs.close()
            stack.callback(process.join)
            stack.callback(ours.close)  # which ends it
            pipes.append(ours)
        ports = [pipe.recv() for pipe in pipes]
        for pipe in pipes:
            pipe.send(ports)
        yield _Sites(pipes)


def _site(home: str, orders: Connection, size: int) -> None:
    """The body of a site's process: it does what it is told."""
    keep_freed_chunks()
    site = Site.load(Path(home))
    transport = GrpcTransport(Credentials(site.tls_key, site.certificate), site.settings.address, shared_port=True)
    with contextlib.closing(Node(site, transport)) as node, one_intra_op_thread(), contextlib.suppress(EOFError):
        trusted = "".join(member.certificate for member in node.followed_lists.membership.members)
        plain = PlainTls(site.home, trusted, size)
        orders.send(plain.port)
        plain.connect([port for port in orders.recv() if port != plain.port])
        before, exchange = _peak(), _Exchange(node, size)
        acts = {"publish": exchange.publish, "hear": exchange.hear, "plain": plain.hear}
        facts: dict[str, Callable[[], float]] = {"cpu": time.process_time, "peak": lambda: (_peak() - before) / size}
        while True:
            what = orders.recv()
            if what in acts:
                acts[what]()
            orders.send(facts[what]() if what in facts else 0.0)


def _peak() -> int:
    """The most bytes that this process had in memory."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


class _Exchange:
    """The exchange of a site's rounds, without training."""

    def __init__(self, node: Node, size: int) -> None:
        self._node = node
        self._round = -1
        drawn = torch.Generator().manual_seed(node.followed_lists.in_force.number)
        self._message = {
            "model": {f"part-{i}": torch.randn(1, size // 4 // _PARTS, generator=drawn) for i in range(_PARTS)}
        }

    def publish(self) -> None:
        """Put the state at the next round's start, which is as large as a message, and the message on the disk."""
        self._round += 1
        epoch = self._node.followed_lists.in_force
        self._node.publisher.publish(epoch, Post(self._round, self._message, EVERYONE, self._message, []))

    def hear(self) -> None:
        """Hear all others, with all checks."""
        epoch, form = self._node.followed_lists.in_force, MessageForm(self._message)
        last, policy = epoch.plan.rounds, self._node.policy
        demand = Demand(self._round, epoch.others, form, lambda message: None, last, policy)
        heard = self._node.puller.pull(epoch.membership, epoch.number, demand)
        if len(heard) < len(epoch.others):
            raise RuntimeError(f"only {len(heard)} of {len(epoch.others)} were heard; see run/log.jsonl")


class Deep(torch.nn.Module):
    """A network of as many equal layers as a message has room for."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        widths = [math.prod(shape), *[_WIDTH] * (MESSAGE // 4 // _WIDTH**2)]
        layers = [(torch.nn.Linear(before, after), torch.nn.ReLU()) for before, after in itertools.pairwise(widths)]
        self.body = torch.nn.Sequential(*itertools.chain(*layers))
        self.head = torch.nn.Linear(_WIDTH, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of the classes."""
        scores: torch.Tensor = self.head(self.body(x.flatten(1)))
        return scores


def whole_rounds(size: int, rounds: int) -> dict[str, float]:
    """Rounds of whole sites, with training, checkpoints and mixing: seconds of a round, and what a site takes at most
    above what it takes when it starts, in messages."""
    with tempfile.TemporaryDirectory() as base:
        with founded(_experiment(rounds, MODEL), Path(base), "patient", Limits(linger=10)) as made:
            peaks = _played(made, size)
        times = [_round_seconds(home) for home in made.homes]
    return {"round_seconds": round(max(times), 3), "peak_in_messages": round(max(peaks), 1)}


def _played(made: Founded, size: int) -> list[float]:
    """The peak of every site, in messages."""
    peaks = []
    with Processes([]) as processes:
        for home in made.homes:
            processes.start(home, _whole_site, size)
        for home, event in processes.events():
            if event.get("ended"):
                raise RuntimeError(f"the site {home.name} ended with exit code {event['ended']}")
            peaks += [event["peak"]] if "peak" in event else []
    return peaks


def _whole_site(home: str, events: Any, size: int) -> None:
    before = _peak()
    run_site(home, shared_port=True)
    events.send_bytes(json.dumps({"peak": (_peak() - before) / size}).encode())


def _round_seconds(home: Path) -> float:
    """From one message on the disk to the next, in the middle."""
    at = [datetime.fromisoformat(line["time"]) for line in lines(home / "run" / "log.jsonl") if _is_committed(line)]
    return float(np.median([(later - earlier).total_seconds() for earlier, later in itertools.pairwise(at)]))


def _is_committed(line: dict[str, Any]) -> bool:
    return bool(line["event"] == "committed")
