"""A site's log as an audit reads it: the events that tell of messages, in their order."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import BaseModel, Field, ValidationError

from facade.errors import ExperimentError, first_mistake
from facade.peers.node.journal import Event, lines
from facade.peers.trust import identity

Round = Annotated[int, Field(ge=0, lt=1 << 63)]
Id = Annotated[str, Field(pattern=f"^{identity.ID}$")]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
"""Logs are other sites' words and are shown on a terminal: names and digests can be nothing else."""


class When(NamedTuple):
    """A round as it was played: one that began under a list that was then replaced is played again."""

    epoch: int
    round: int


class Started(BaseModel):
    """An event of a log: a site began, or began again."""

    id: Id
    federation: str


class Committed(BaseModel):
    """An event of a log: a message was published."""

    epoch: int
    round: Round
    sha256: Digest


class Heard(BaseModel):
    """An event of a log: a peer's message came and was accepted."""

    epoch: int
    round: Round
    peer: Id
    sha256: Digest


class Mixed(BaseModel):
    """An event of a log: a round was mixed from the messages of these members, by number."""

    epoch: int
    round: Round
    heard: list[int]


class Judged(BaseModel):
    """An event of a log: parts of messages, by who sent them, that the site's guard did not use."""

    epoch: int
    round: Round
    dropped: dict[Id, list[str]]
    gate_closed: bool = False


class Used(BaseModel):
    """An event of a log: what guard and gate let through in a round, and the state that came of it, as digests."""

    epoch: int
    round: Round
    sha256: Digest
    state_sha256: Digest


class WentBack(BaseModel, frozen=True):
    """An event of a log: a site went back to a round, as a list says."""

    epoch: int
    round: Round
    state: Round | None
    """The round whose state it went on from; None: it began anew."""


class TurnedAway(BaseModel):
    """An event of a log: a peer's message was refused."""

    round: Round
    peer: Id
    reason: str


_EVENTS: dict[str, type[BaseModel]] = {
    "started": Started,
    "committed": Committed,
    "heard": Heard,
    "mixed": Mixed,
    "judged": Judged,
    "used": Used,
    "went-back": WentBack,
    "refused": TurnedAway,
}


@dataclass(frozen=True)
class Log:
    """The events of one site's log that an audit looks at, in their order."""

    id: str
    federation: str
    events: list[BaseModel]

    @classmethod
    def read(cls, path: Path) -> Log:
        """The log of a file; ExperimentError if it is none."""
        if not path.is_file():
            raise ExperimentError(f"{path} is no file; give the log.jsonl that a site has in its run directory")
        events = [_parsed(event, path) for event in lines(path) if isinstance(event, dict)]
        named = [event for event in events if event is not None]
        first = next((event for event in named if isinstance(event, Started)), None)
        if first is None:
            raise ExperimentError(f"{path} does not say which site began a run; give a site's run/log.jsonl, whole")
        return cls(first.id, first.federation, named)

    @property
    def published(self) -> dict[When, list[str]]:
        """The digests under which messages were published; more than one for a round is a contradiction."""
        digests: dict[When, list[str]] = defaultdict(list)
        for event in self.events:
            if isinstance(event, Committed) and event.sha256 not in digests[at := When(event.epoch, event.round)]:
                digests[at].append(event.sha256)
        return dict(digests)

    @property
    def heard(self) -> list[Heard]:
        """The messages that were accepted."""
        return [event for event in self.events if isinstance(event, Heard)]


def _parsed(event: Event, path: Path) -> BaseModel | None:
    kind = _EVENTS.get(str(event.get("event")))
    if kind is TurnedAway and event.get("side") != "payload":
        return None  # a call, not a message
    try:
        return None if kind is None else kind.model_validate(event)
    except ValidationError as error:
        mistake = first_mistake(error)
        raise ExperimentError(f"{path} has an event '{event['event']}' that cannot be read: {mistake}") from None
