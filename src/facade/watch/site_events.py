"""What the log of a real site says of it: where it is, whom it has heard in a round, and what it waits for."""

from __future__ import annotations

import datetime
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from facade.peers.node.journal import Event
from facade.watch.pace import Pace

_KEPT = 4
"""Exchanges of which the log's word is kept."""
_MOST_SAID = 12
SAID = {
    "refused", "missed", "jumped", "epoch", "paused", "resumed", "shortage", "shortage-over", "went-back", "expired",
    "list-refused", "settings-refused", "changed", "flood", "absent", "judged", "finished", "left", "started",
}  # fmt: skip
"""Events that are shown as they are."""


@dataclass
class Exchange:
    """What came of one round's messages."""

    heard: set[str] = field(default_factory=set)
    missed: set[str] = field(default_factory=set)
    """Who did not come in time, no longer keeps the round, or was refused."""
    dropped: set[str] = field(default_factory=set)
    """Of whose messages the guard dropped something."""
    over: bool = False
    """Whether the site has mixed what came."""

    def state_of(self, id: str) -> int:
        """What came of a member's message: 0 it was heard, 1 dropped by the guard, 2 missed, 3 is still to come."""
        if id in self.dropped:
            return 1
        return 0 if id in self.heard else 2 if id in self.missed else 3


class SiteEvents:
    """The events of one site's log, in their order."""

    def __init__(self) -> None:
        self.id = ""
        self.round = 0
        """The round, counted from 0, whose message was published last."""
        self.rounds = 0
        self.epoch = 0
        self.exchanges: dict[int, Exchange] = {}
        """By round, the newest few."""
        self.trouble = ""
        """Why it does not go on, in words; empty where it does."""
        self.ended = ""
        """In words, that it has finished, or stopped; empty before."""
        self.said: deque[tuple[float, str]] = deque(maxlen=_MOST_SAID)
        """(seconds since 1970, in words) of what an operator may want to know."""
        self.pace = Pace()
        self.last = 0.0
        """When the last event was, in seconds since 1970."""

    def add(self, event: Event) -> None:
        """Take one line of the log."""
        name = str(event.get("event"))
        self.last = _seconds(event.get("time"))
        take = getattr(self, "_" + name.replace("-", "_"), None)
        if take is not None:
            take(event)
        if name in SAID and event.get("side") != "caller":
            self.said.append((self.last, in_words(name, event)))

    def exchange(self, round: int) -> Exchange:
        """What came of a round's messages."""
        if round not in self.exchanges:
            self.exchanges[round] = Exchange()
            for old in sorted(self.exchanges)[:-_KEPT]:
                del self.exchanges[old]
        return self.exchanges.get(round, Exchange())

    def _started(self, event: Event) -> None:
        self.id, self.rounds, self.epoch = str(event["id"]), int(event["rounds"]), int(event["epoch"])
        self.round, self.trouble, self.ended = int(event["round"]), "", ""
        self.pace, self.exchanges = Pace(), {}

    def _committed(self, event: Event) -> None:
        self.round, self.epoch, self.trouble = int(event["round"]), int(event["epoch"]), ""
        self.exchanges.pop(self.round, None)  # one that is played again is heard again
        self.pace.add(self.last, self.round)

    def _heard(self, event: Event) -> None:
        self.exchange(int(event["round"])).heard.add(str(event["peer"]))

    def _missed(self, event: Event) -> None:
        self.exchange(int(event["round"])).missed.update(map(str, event["peers"]))

    def _gone(self, event: Event) -> None:
        self.exchange(int(event["round"])).missed.add(str(event["peer"]))

    def _refused(self, event: Event) -> None:
        if event.get("side") == "payload":
            self.exchange(int(event["round"])).missed.add(str(event["peer"]))

    def _mixed(self, event: Event) -> None:
        self.exchange(int(event["round"])).over = True

    def _judged(self, event: Event) -> None:
        self.exchange(int(event["round"])).dropped.update(map(str, event["dropped"]))

    def _jumped(self, event: Event) -> None:
        self.round = int(event["round"])

    def _epoch(self, event: Event) -> None:
        self.epoch, self.rounds = int(event["epoch"]), int(event["rounds"])

    def _waiting(self, event: Event) -> None:
        peers = listed(event.get("peers", ()))
        self.trouble = f"waits for {peers} to begin" if peers else f"waits for round {event.get('round', 0)} to join in"

    def _absent(self, event: Event) -> None:
        self.trouble = ""

    def _paused(self, event: Event) -> None:
        there = f"{event['there']} of {event['members']} members are there, {event['needed']} are needed"
        self.trouble = f"pauses: {there}; absent: {listed(event['absent'])}"

    def _resumed(self, event: Event) -> None:
        self.trouble = ""

    def _shortage(self, event: Event) -> None:
        self.trouble = f"pauses: too little of {event.get('lacks', 'something')}"

    def _shortage_over(self, event: Event) -> None:
        self.trouble = ""

    def _finished(self, event: Event) -> None:
        self.ended, self.trouble = "finished", ""

    def _staying(self, event: Event) -> None:
        self.ended = f"finished; stays for {listed(event['peers'])}"

    def _left(self, event: Event) -> None:
        self.ended = "finished" if self.ended else "stopped"


def in_words(name: str, event: Event) -> str:
    """An event in a few words."""
    round = f"round {int(event['round']) + 1}: " if isinstance(event.get("round"), int) else ""
    if name == "missed":
        return f"{round}{listed(event['peers'])} did not come, waited {event.get('waited', 0):.1f} s"
    if name == "refused":
        return f"{round}refused {event.get('peer')}: {event.get('reason')}"
    if name == "judged":
        dropped = "; ".join(f"{listed(parts)} of {peer}" for peer, parts in event["dropped"].items())
        closed = "the last gate closed" if event.get("gate_closed") else ""
        return f"{round}dropped {dropped or 'nothing'}{', ' if closed else ''}{closed}"
    if name == "paused":
        return f"{round}pauses, absent: {listed(event['absent'])}"
    if name == "absent":
        return f"goes on without {listed(event['peers'])}"
    if name == "shortage":
        return f"too little of {event.get('lacks')}: {event.get('says', '')}"
    if "says" in event:
        return f"{name}: {event['says']}"
    return round + name.replace("-", " ")


def listed(names: Iterable[object]) -> str:
    """Names side by side."""
    return ", ".join(map(str, names))


def _seconds(time: object) -> float:
    try:
        return datetime.datetime.fromisoformat(str(time)).timestamp()
    except ValueError:
        return 0.0
