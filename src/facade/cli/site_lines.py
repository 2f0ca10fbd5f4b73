"""What a running site tells the person in front of it: a line for every round, and for what an operator may have to
do something about. The log in its run directory has everything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from facade.core.types import Row
from facade.peers.node.journal import Event

_REFUSED = {
    "caller": "a call of {peer} is refused",
    "callee": "{peer} refuses this site's calls",
    "payload": "a message of {peer} is not used",
}
"""By the side of a refusal that the log names."""


def too_few(pause: Event) -> str:
    """Why a site pauses, in words."""
    there = f"{pause['there']} of {pause['members']} members are there, itself included, and {pause['needed']} must be"
    return f"{there} (absent: {', '.join(pause['absent'])})"


@dataclass
class SiteLines:
    """Turns rows and events of a site into lines, and says them."""

    say: Callable[[str], None]
    rounds: int = 0
    """Of the run; known when it has started."""

    def rows(self, rows: list[Row]) -> None:
        """What was recorded of a round."""
        for row in rows:
            if row["kind"] == "round":
                self.say(f"round {row['round']} of {self.rounds}  {row['bytes']:,} bytes heard")
            else:
                counts = np.asarray(row["confusion"])
                moment = "the final exchange" if row["kind"] == "final" else f"round {row['round']}"
                self.say(f"accuracy after {moment}: {np.trace(counts) / counts.sum():.1%} on this site's test data")

    def event(self, event: Event) -> None:
        """A line of the log; most of them need nobody's attention."""
        self.rounds = event.get("rounds", self.rounds)
        line = self._line(event)
        if line is not None:
            self.say(line)

    def _line(self, event: Event) -> str | None:
        peers = ", ".join(event.get("peers", []))
        match event["event"]:
            case "waiting" if peers:
                return f"waiting for {peers}, at most {event['seconds']:g} s"
            case "waiting":
                return f"waiting until the others are in round {event['round'] + 1}, this site's first"
            case "absent":
                return f"beginning without {peers}: no answer"
            case "missed":
                return f"{self._moment(event)}: going on without {peers}"
            case "refused" if event["reason"] == "ignored" and event["side"] != "callee":
                return None  # as the operator wants it; it was said once
            case "paused":
                return f"{self._moment(event)}: pausing, for {too_few(event)}; going on when more answer"
            case "resumed":
                return f"{self._moment(event)}: going on, for enough members answer again"
            case "refused":
                details = f": {event['details']}" if event.get("details") else ""
                return f"{_REFUSED[event['side']].format(peer=event['peer'])} ({event['reason']}{details})"
            case "judged" if event["gate_closed"]:
                return f"{self._moment(event)}: what was heard is not used, for it makes this site's model far worse"
            case "shortage":
                return f"pausing: too little of {event['lacks']} ({event['says']}); trying again until there is more"
            case "shortage-over":
                return f"going on after a pause of {event['seconds']:.0f} s"
            case "flood":
                return f"more connections than places, most of them from {event['address']}; the idle ones are closed"
            case "short":
                return f"{self._moment(event)}: too little {event['lacks']} for the message of {event['peer']}"
            case "jumped":
                return f"too far behind the others: going on in {self._moment(event)}"
            case "went-back":
                return f"list {event['epoch']} goes back: this site begins again in {self._moment(event)}"
            case "epoch":
                return f"{self._moment(event)}: list {event['epoch']} is in force"
            case "ignoring":
                return f"ignoring {peers}, as node.toml says" if peers else "ignoring nobody any more"
            case "settings-refused":
                return f"the changed node.toml is not used: {event['says']}"
            case "list-refused":
                return f"the new membership.json is not used: {event['says']}"
            case "staying":
                return f"finished; staying for {peers or 'whoever asks'}, who may still need its messages"
        return None

    def _moment(self, event: Event) -> str:
        return "final exchange" if event["round"] == self.rounds else f"round {event['round'] + 1}"
