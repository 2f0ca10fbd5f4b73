"""The comparison of sites by their site.json files, in words and cells: the same on a terminal and on a page."""

from __future__ import annotations

from typing import Any, NamedTuple

NUMBERS = ("accuracy", "AUC", "gain", "head", "images", "unused", "group", "gate")
WORDS = ("unheard", "refused", "dropped")
"""Columns that hold a number, and those that do not."""
_UNHEARD = ("missed", "refused", "dropped")


class Line(NamedTuple):
    """What a table says of a site."""

    site: str
    numbers: list[str]
    words: list[str]


def title(comparison: dict[str, Any]) -> str:
    """Whose comparison it is."""
    return f"{comparison['federation']}: {comparison['algorithm']}, policy {comparison['policy']}"


def lines(comparison: dict[str, Any]) -> list[Line]:
    """Accuracy, gain and participation of every site; shares in percent."""
    return [_line(site) for site in comparison["sites"]]


def _line(site: dict[str, Any]) -> Line:
    auc = site["measures"]["auc"]["value"]
    numbers = [
        f"{100 * site['accuracy']:.1f}",
        "-" if auc is None else f"{auc:.3f}",
        "-" if site["gain"] is None else f"{100 * site['gain']:+.1f}",
        "-" if site["choice"] is None else str(site["choice"]),
        str(site["images"]),
        *(f"{100 * site[whose]:.1f}" for whose in ("unused_by_others", "unused_of_group")),
        str(site["gate_closed"]),
    ]
    words = [", ".join(f"{id} {count}x" for id, count in site[why].items()) or "-" for why in _UNHEARD]
    return Line(site["id"], numbers, words)


def sentences(comparison: dict[str, Any]) -> list[str]:
    """What sites have in common, who is worse off than alone, and who is suspected."""
    said = [
        f"mean {100 * comparison['mean']:.1f} %, worst site {100 * comparison['worst']:.1f} %,"
        f" spread {100 * comparison['spread']:.1f} points"
    ]
    if comparison["missing"]:
        said.append(f"without {', '.join(comparison['missing'])}, whose files are not among these")
    if comparison["losers"]:
        said.append(f"worse off than alone: {', '.join(comparison['losers'])}")
    return said + [suspicion(suspect) for suspect in comparison["suspects"]]


def suspicion(suspect: dict[str, Any]) -> str:
    """Why somebody is a suspect."""
    when = "in the final exchange" if suspect["at_end"] else "of its messages"
    return f"suspect: {suspect['id']}, not used {100 * suspect['share']:.0f} % {when}, by {suspect['sites']} sites"
