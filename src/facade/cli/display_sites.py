"""What is said across sites: the table of `facade report`, one line per site, and what an audit found."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.table import Table

from facade.cli.console import out

if TYPE_CHECKING:
    from rich.console import Console

    from facade.peers.after.audit import Audit

_UNHEARD = ("missed", "refused", "dropped")
_NUMBERS = ("accuracy", "AUC", "gain", "head", "images", "unused", "group", "gate")
_WORDS = ("unheard", "refused", "dropped")
"""Columns that hold a number, and those that do not."""


def print_sites(comparison: dict[str, Any]) -> None:
    """Accuracy, gain and participation of every site, then what they have in common."""
    table = Table(
        title=f"{comparison['federation']}: {comparison['algorithm']}, policy {comparison['policy']}; shares in %",
        title_justify="left",
    )
    table.box, table.padding, table.pad_edge = None, (0, 1, 0, 0), False
    table.add_column("site")
    for heading in _NUMBERS:
        table.add_column(heading, justify="right")
    for heading in _WORDS:
        table.add_column(heading)
    for site in comparison["sites"]:
        gain = "-" if site["gain"] is None else f"{100 * site['gain']:+.1f}"
        head = "-" if site["choice"] is None else str(site["choice"])
        unheard = (", ".join(f"{id} {count}x" for id, count in site[why].items()) or "-" for why in _UNHEARD)
        shares = (f"{100 * site[whose]:.1f}" for whose in ("unused_by_others", "unused_of_group"))
        auc = site["measures"]["auc"]["value"]
        area = "-" if auc is None else f"{auc:.3f}"
        numbers = (
            f"{100 * site['accuracy']:.1f}",
            area,
            gain,
            head,
            str(site["images"]),
            *shares,
            str(site["gate_closed"]),
        )
        table.add_row(site["id"], *numbers, *unheard)
    out.print(table)
    out.print(
        f"\nmean {100 * comparison['mean']:.1f} %, worst site {100 * comparison['worst']:.1f} %,"
        f" spread {100 * comparison['spread']:.1f} points",
    )
    if comparison["missing"]:
        out.print(f"without {', '.join(comparison['missing'])}, whose files are not among these")
    if comparison["losers"]:
        out.print(f"worse off than alone: {', '.join(comparison['losers'])}")
    for suspect in comparison["suspects"]:
        out.print(_suspicion(suspect))


def _suspicion(suspect: dict[str, Any]) -> str:
    when = "in the final exchange" if suspect["at_end"] else "of its messages"
    return f"suspect: {suspect['id']}, not used {100 * suspect['share']:.0f} % {when}, by {suspect['sites']} sites"


def print_audit(console: Console, audit: Audit) -> None:
    """What does not fit among the sites' logs, or that everything does."""
    logs = f"{len(audit.sites)} log{'' if len(audit.sites) == 1 else 's'}"
    console.print(f"{logs}, {audit.rounds} rounds, {audit.messages} messages heard", soft_wrap=True)
    if audit.replayed:
        console.print(f"{audit.replayed} exchanges mixed again from kept messages", soft_wrap=True)
    if audit.missing:
        console.print(f"without {', '.join(audit.missing)}, whose logs are not among these", soft_wrap=True)
    for sentence in (*audit.findings, *audit.notes, *(_suspicion(asdict(suspect)) for suspect in audit.suspects)):
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
