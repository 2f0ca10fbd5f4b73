"""What is said across sites: the table of `facade report`, one line per site, and what an audit found."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.table import Table

from facade.analysis import site_comparison
from facade.cli.console import out

if TYPE_CHECKING:
    from rich.console import Console

    from facade.peers.after.audit import Audit


def print_sites(comparison: dict[str, Any]) -> None:
    """Accuracy, gain and participation of every site, then what they have in common."""
    table = Table(title=f"{site_comparison.title(comparison)}; shares in %", title_justify="left")
    table.box, table.padding, table.pad_edge = None, (0, 1, 0, 0), False
    table.add_column("site")
    for heading in site_comparison.NUMBERS:
        table.add_column(heading, justify="right")
    for heading in site_comparison.WORDS:
        table.add_column(heading)
    for line in site_comparison.lines(comparison):
        table.add_row(line.site, *line.numbers, *line.words)
    out.print(table)
    out.print()
    for sentence in site_comparison.sentences(comparison):
        out.print(sentence)


def print_audit(console: Console, audit: Audit) -> None:
    """What does not fit among the sites' logs, or that everything does."""
    logs = f"{len(audit.sites)} log{'' if len(audit.sites) == 1 else 's'}"
    console.print(f"{logs}, {audit.rounds} rounds, {audit.messages} messages heard", soft_wrap=True)
    if audit.replayed:
        console.print(f"{audit.replayed} exchanges mixed again from kept messages", soft_wrap=True)
    if audit.missing:
        console.print(f"without {', '.join(audit.missing)}, whose logs are not among these", soft_wrap=True)
    for sentence in (
        *audit.findings,
        *audit.notes,
        *(site_comparison.suspicion(asdict(suspect)) for suspect in audit.suspects),
    ):
        console.print(f"  {sentence}", soft_wrap=True)
    if audit.findings:
        count = len(audit.findings)
        console.print(f"{count} thing{'' if count == 1 else 's'} that do{'es' if count == 1 else ''} not fit")
    else:
        fits = "All that could be compared fits" if audit.missing or audit.notes else "All fits"
        console.print(
            f"{fits}: what was used had been published, was the same for all, and was meant for who used it",
            soft_wrap=True,
        )
