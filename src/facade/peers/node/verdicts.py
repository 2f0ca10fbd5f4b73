"""What a site's guard decided about what it heard, as its rows say it; from there into the log, the ledger and the
metrics. And what it used then, as digests: an audit can compare them, and make them again from kept messages."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from facade.core.types import Row
from facade.peers.node.records import Records
from facade.peers.node.site_epoch import SiteEpoch
from facade.peers.trust import identity

ALL = "all"
"""Stands, among the parts of a message, for the whole of it."""


class Verdict(NamedTuple):
    """What a guard decided in one exchange."""

    round: int
    """As logs count it, from 0; that of the final exchange is the number of rounds."""
    final: bool
    dropped: dict[str, list[str]]
    """The parts that were not used, by the ids of those who sent them."""
    gate_closed: bool
    """Whether the site went on as if it had heard nobody."""


def verdicts(rows: Iterable[Row], epoch: SiteEpoch) -> Iterator[Verdict]:
    """What the rows of one site, made under a list, say of its guard; nothing where it had no objection."""
    for row in rows:
        dropped: dict[str, list[str]] = {}
        for number, part in zip(row.get("dropped", ()), row.get("dropped_part", ()), strict=True):
            if number >= 0:
                name = epoch.parts[part - 1] if part else ALL
                dropped.setdefault(epoch.membership.members[number].id, []).append(name)
        if dropped or row.get("gate_closed"):
            final = row["kind"] == "final"
            yield Verdict(row["round"] if final else row["round"] - 1, final, dropped, row["gate_closed"])


def last_exchange(rows: Iterable[Row]) -> int | None:
    """The round, as logs count it, of the exchange that the rows of one post tell of; None if they tell of none."""
    row = next((row for row in rows if row["kind"] in ("round", "final")), None)
    return None if row is None else row["round"] - (row["kind"] == "round")


def used_sha256(messages: Mapping[str, str], dropped: Mapping[str, Sequence[str]], gate_closed: bool) -> str:
    """The digest of what guard and gate let through in an exchange: of the SHA-256 values of the messages that were
    mixed, by the ids of their senders, of the parts of them that were dropped, and of whether the last gate closed."""
    parts = {id: sorted(names) for id, names in dropped.items()}
    facts = {"messages": dict(messages), "dropped": parts, "gate_closed": gate_closed}
    return hashlib.sha256(identity.canonical(facts)).hexdigest()


def note(verdict: Verdict, epoch: int, heard: Iterable[str], records: Records) -> None:
    """Write a verdict down; `heard` are the ids of those whose messages came in that exchange."""
    facts = {"dropped": verdict.dropped, "gate_closed": verdict.gate_closed}
    records.journal.write("judged", round=verdict.round, epoch=epoch, **facts)
    for id, parts in verdict.dropped.items():
        records.ledger.drop(id, parts, verdict.final)
        for part in parts:
            records.metrics.dropped.labels(part).inc()
    if verdict.gate_closed:
        records.metrics.gate_closed.inc()
        for id in heard:
            records.ledger.of(id).gate_closed += 1
