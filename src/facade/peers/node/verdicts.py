"""What a site's guard decided about what it heard, as its rows say it; from there into the log, the ledger and the
metrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from facade.core.types import Row
from facade.peers.node.records import Records
from facade.peers.node.site_epoch import SiteEpoch

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
