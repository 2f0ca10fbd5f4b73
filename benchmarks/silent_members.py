"""What members that are down, and networks that fall into parts, cost the others.

    python benchmarks/silent_members.py dead-site --training 0.1
    python benchmarks/silent_members.py down --seconds 60 --degree 2
    python benchmarks/silent_members.py parted --sides 4 2 --seconds 30

Six sites, each a process of its own, talk over mutual TLS on this machine: digits, FACADE, policy brisk. A site hears
`--degree` others in a round, or all of them. A training takes at least so many seconds. `dead-site` kills one of them
and starts it again many rounds later; `down` kills three for a while, or stops them (SIGSTOP), so that they hang;
`parted` keeps calls from getting from one side to the other for a while.
Each prints a line of JSON, made of the sites' logs; a run takes half a minute more than the time that is asked for.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from facade import Experiment
from facade.peers.local_network import Processes, founded, site_process
from facade.peers.node.journal import Event, lines
from facade.peers.trust.membership import Limits

CUT_OFF = "cut-off"
"""The file beside a site's node.toml that names those whom it cannot reach."""
LONGEST = 600.0
"""Seconds after which a run that does not come to its end is given up."""


def experiment(rounds: int, degree: int = 0) -> Experiment:
    """A run of six sites, in which each hears so many others in a round; 0: all."""
    graph = {"name": "regular", "degree": degree} if degree else {"name": "complete"}
    return Experiment.of(
        {
            "name": "silent-members",
            "data": {"source": "digits", "clusters": "4:2"},
            "algorithm": {"name": "facade", "warmup": 1, "seeding": "none"},
            "topology": graph,
            "training": {"rounds": rounds, "steps": 1},
            "evaluation": {"every": rounds},
            "runtime": {"threads": 1},
        }
    )


def site(home: str, events: Any, seconds: float) -> None:
    """The body of a site's process: its training takes at least so many seconds, and it reaches nobody who is named in
    its file of those who are cut off."""
    from facade.learning.learner import Learner
    from facade.peers.protocol.rpc import Link, Links
    from facade.peers.trust.membership import Member

    fit, to, cut = Learner.fit, Links.to, Path(home) / CUT_OFF

    def slower(self: Learner, *given: Any, **named: Any) -> Any:
        ends = time.monotonic() + seconds
        made = fit(self, *given, **named)
        threading.Event().wait(max(0.0, ends - time.monotonic()))
        return made

    def reached(self: Links, peer: Member) -> Link:
        link = to(self, peer)
        return _NoLink() if cut.exists() and peer.id in cut.read_text().split() else link

    Learner.fit, Links.to = slower, reached  # type: ignore[method-assign]
    site_process(home, events)


class _NoLink:
    """The way to a site that cannot be reached."""

    def call(self, *_: Any) -> Any:
        from facade.peers.protocol.transport import UnreachableError

        raise UnreachableError("UNAVAILABLE: cut off")


def logged(home: Path, *names: str) -> list[Event]:
    """The lines of some kinds in a site's log, in their order."""
    return [event for event in lines(home / "run" / "log.jsonl") if event["event"] in names]


def until(condition: Callable[[], object]) -> None:
    """Wait for what the sites do; TimeoutError if they do not."""
    ends = time.monotonic() + LONGEST
    while not condition():
        if time.monotonic() > ends:
            raise TimeoutError(f"it did not happen within {LONGEST:g} s")
        threading.Event().wait(0.05)


@dataclass
class Network:
    """Six sites that run."""

    homes: list[Path]
    processes: Processes
    training: float

    def start(self, home: Path) -> None:
        """Start a site, or start it again."""
        self.processes.start(home, site, self.training)

    def kill(self, home: Path) -> None:
        """End a site without a word."""
        process = self.processes.running[home]
        os.kill(process.pid, signal.SIGKILL)
        process.join()

    def await_round(self, round: int, homes: Sequence[Path]) -> None:
        """Wait until sites have published their messages of a round."""
        until(lambda: all(reached(home) >= round for home in homes))

    def await_end(self) -> dict[str, int]:
        """The exit code of every site that was not killed, by id, when all have ended."""
        ends = {home.name: event["ended"] for home, event in self.processes.events() if "ended" in event}
        return {id: code for id, code in ends.items() if code != -signal.SIGKILL}


def reached(home: Path) -> int:
    """The last round of which a site has published its message."""
    return max((event["round"] for event in logged(home, "committed")), default=-1)


@contextlib.contextmanager
def network(base: Path, described: Experiment, training: float) -> Iterator[Network]:
    """Six sites below `base`, running."""
    with founded(described, base, "brisk", Limits(linger=10)) as made, Processes([]) as processes:
        running = Network(made.homes, processes, training)
        for home in made.homes:
            running.start(home)
        yield running


def dead_site(base: Path, training: float, degree: int, rounds_dead: int, rounds_after: int) -> dict[str, Any]:
    """Kill one of six, and start it again when the others have played so many rounds without it. How long they waited
    for it after ten misses, and how often they missed it after its first message until it was heard again."""
    before = 5
    with network(base, experiment(before + rounds_dead + rounds_after, degree), training) as running:
        dead, others = running.homes[-1], running.homes[:-1]
        running.await_round(before, running.homes)
        running.kill(dead)
        running.await_round(before + rounds_dead, others)
        started = len(logged(dead, "committed"))
        running.start(dead)
        ends = running.await_end()
    again = logged(dead, "committed")[started:]
    published = {event["round"]: event["time"] for event in reversed(again)}
    later = {"training": training, "ends": ends, "first_round_back": again[0]["round"]}
    return later | {"others": {home.name: _seen(home, dead.name, published) for home in others}}


def _seen(home: Path, dead: str, published: dict[int, str]) -> dict[str, Any]:
    """How a site met one that was dead and published again, by the rounds and times at which it did."""
    back = min(published.values())
    missed = [e for e in logged(home, "missed") if dead in e["peers"]]
    waits = [e["waited"] for e in missed if e["time"] < back]
    committed = [datetime.fromisoformat(e["time"]) for e in logged(home, "committed") if e["time"] < back]
    rounds = [(b - a).total_seconds() for a, b in itertools.pairwise(committed)]
    heard = [e["round"] for e in logged(home, "heard") if e["peer"] == dead and e["time"] >= back]
    return {
        "misses": len(waits),
        "first_waits": [round(seconds, 3) for seconds in waits[:10]],
        "median_wait": statistics.median(waits[10:]) if waits[10:] else None,
        "median_round": statistics.median(rounds[-len(waits[10:]) :]) if waits[10:] else None,
        "misses_until_heard": sum(e["time"] >= back and e["round"] < min(heard) for e in missed) if heard else None,
    }


@dataclass(frozen=True)
class Outage:
    """How several sites are down."""

    count: int = 3
    seconds: float = 60.0
    stopped: bool = False
    """They hang, and go on afterwards; else they are killed and started again."""

    def begin(self, running: Network, homes: Sequence[Path]) -> None:
        """Take sites down."""
        for home in homes:
            if self.stopped:
                os.kill(running.processes.running[home].pid, signal.SIGSTOP)
            else:
                running.kill(home)

    def end(self, running: Network, homes: Sequence[Path]) -> None:
        """Bring them back."""
        for home in homes:
            if self.stopped:
                os.kill(running.processes.running[home].pid, signal.SIGCONT)
            else:
                running.start(home)


def down(base: Path, outage: Outage, training: float = 0.1, degree: int = 0) -> dict[str, Any]:
    """Take several of six down at once and bring them back after a while; what the others did meanwhile."""
    with network(base, experiment(60, degree), training) as running:
        dead, others = running.homes[-outage.count :], running.homes[: -outage.count]
        running.await_round(5, running.homes)
        began = {home.name: reached(home) for home in others}
        outage.begin(running, dead)
        threading.Event().wait(outage.seconds)
        played = {home.name: reached(home) - began[home.name] for home in others}
        outage.end(running, dead)
        ends = running.await_end()
    return asdict(outage) | {"ends": ends, "rounds_meanwhile": played} | _pauses(running.homes)


def parted(base: Path, sizes: Sequence[int], seconds: float, training: float = 0.1, degree: int = 0) -> dict[str, Any]:
    """Part six sites into two sides for a while; how many rounds each site played meanwhile, and who paused."""
    with network(base, experiment(1000, degree), training) as running:
        sides = running.homes[: sizes[0]], running.homes[sizes[0] :]
        running.await_round(5, running.homes)
        for side, other in (sides, sides[::-1]):
            for home in side:
                (home / CUT_OFF).write_text(" ".join(each.name for each in other))
        began = {home.name: reached(home) for home in running.homes}
        threading.Event().wait(seconds)
        played = {home.name: reached(home) - began[home.name] for home in running.homes}
        healed = max(map(reached, running.homes))
        for home in running.homes:
            (home / CUT_OFF).unlink()
        running.await_round(healed + 2, running.homes)
    return {"sides": list(sizes), "seconds": seconds, "rounds_meanwhile": played} | _pauses(running.homes)


def _pauses(homes: Sequence[Path]) -> dict[str, Any]:
    """By site, how often it paused and went on again, and how many rounds it mixed from nobody's message."""
    names = ("paused", "resumed", "jumped")
    counts = {name: {home.name: len(logged(home, name)) for home in homes} for name in names}
    alone = {home.name: sum(not event["heard"] for event in logged(home, "mixed")) for home in homes}
    return counts | {"alone": alone}


def main() -> None:
    """Measure what is asked for, and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["dead-site", "down", "parted"])
    parser.add_argument("--training", type=float, default=0.1, help="seconds")
    parser.add_argument("--rounds-dead", type=int, default=40, help="of the others, while a site is dead")
    parser.add_argument("--rounds-after", type=int, default=30, help="after its return")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long sites are down, or cut off")
    parser.add_argument("--sides", type=int, nargs=2, default=(4, 2), help="sites on each side")
    parser.add_argument("--degree", type=int, default=0, help="others that a site hears in a round; 0: all")
    parser.add_argument("--stopped", action="store_true", help="sites that are down hang")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as path:
        base = Path(path) / "sites"
        if given.what == "dead-site":
            found = dead_site(base, given.training, given.degree, given.rounds_dead, given.rounds_after)
        elif given.what == "down":
            found = down(base, Outage(3, given.seconds, given.stopped), given.training, given.degree)
        else:
            found = parted(base, given.sides, given.seconds, given.training, given.degree)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
