"""What is said across sites: the table of `facade report`, one line per site, and what an audit found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table

from facade.cli.console import out

if TYPE_CHECKING:
    from rich.console import Console

    from facade.peers.after.audit import Audit

_UNHEARD = ("missed", "refused")
_WORDS = ("site", "not heard in time", "refused")
"""Columns that hold no number."""


def print_sites(found: dict[str, Any]) -> None:
    """Accuracy, gain and participation of every site, then what they have in common."""
    table = Table(title=f"{found['federation']}: {found['algorithm']}, policy {found['policy']}", title_justify="left")
    table.box, table.padding, table.pad_edge = None, (0, 2, 0, 0), False
    for heading in ("site", "accuracy %", "gain over alone", "head", "images", "not heard in time", "refused"):
        table.add_column(heading, justify="left" if heading in _WORDS else "right")
    for site in found["sites"]:
        gain = "-" if site["gain"] is None else f"{100 * site['gain']:+.1f}"
        head = "-" if site["choice"] is None else str(site["choice"])
        unheard = (", ".join(f"{id} {count}x" for id, count in site[why].items()) or "-" for why in _UNHEARD)
        table.add_row(site["id"], f"{100 * site['accuracy']:.1f}", gain, head, str(site["images"]), *unheard)
    out.print(table)
    out.print(
        f"\nmean {100 * found['mean']:.1f} %, worst site {100 * found['worst']:.1f} %,"
        f" spread {100 * found['spread']:.1f} points",
    )
    if found["missing"]:
        out.print(f"without {', '.join(found['missing'])}, whose files are not among these")
    if found["losers"]:
        out.print(f"worse off than alone: {', '.join(found['losers'])}")


def print_audit(console: Console, found: Audit) -> None:
    """What does not fit among the sites' logs, or that everything does."""
    logs = f"{len(found.sites)} log{'' if len(found.sites) == 1 else 's'}"
    console.print(f"{logs}, {found.rounds} rounds, {found.messages} messages heard", soft_wrap=True)
    if found.missing:
        console.print(f"without {', '.join(found.missing)}, whose logs are not among these", soft_wrap=True)
    for said in (*found.findings, *found.notes):
        console.print(f"  {said}", soft_wrap=True)
    if found.findings:
        count = len(found.findings)
        console.print(f"{count} thing{'' if count == 1 else 's'} that do{'es' if count == 1 else ''} not fit")
    else:
        fits = "All that could be compared fits" if found.missing or found.notes else "All fits"
        console.print(
            f"{fits}: what was used had been published, was the same for all, and was meant for who used it",
            soft_wrap=True,
        )
