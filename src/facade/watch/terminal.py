"""The same in a terminal: a table of all that is watched, redrawn as it changes."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from facade.watch.subject import Section
from facade.watch.watching import Watching

_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 24
_HEADS = ("cyan", "yellow", "green", "magenta", "blue", "red", "white", "bright_black")
_MOST_ROWS = 16
"""Rows of a strip that a terminal shows of one run."""


class Shown:
    """What a terminal shows of what is watched."""

    def __init__(self, watching: Watching) -> None:
        self._watching = watching
        self._version = 0
        self._order: list[str] = []
        self._subjects: dict[str, dict[str, Section]] = {}

    def look(self) -> bool:
        """Whether something has changed."""
        changes = self._watching.changes(self._version)
        self._version = changes.version
        if not changes.content:
            return False
        told = json.loads(changes.content)
        self._order = told["order"]
        for id, sections in told["subjects"].items():
            kept = self._subjects.setdefault(id, {})
            kept |= sections
            self._subjects[id] = {name: section for name, section in kept.items() if section is not None}
        return True

    def picture(self) -> RenderableType:
        """All of it."""
        subjects = [self._subjects[id] for id in self._order if "about" in self._subjects.get(id, {})]
        if not subjects:
            return Text("No run has begun here yet.")
        parts: list[RenderableType] = [_overview(subjects)]
        for subject in subjects:
            if "sites" in subject:
                parts.append(_sites(subject))
            if len(subjects) == 1:
                parts += _details(subject)
        return Group(*parts)


def watch_in_terminal(watching: Watching, console: Console) -> None:
    """Redraw until somebody presses Ctrl-C; where the output is no terminal, print it once."""
    shown = Shown(watching)
    while shown.look() and watching.is_behind:
        pass
    if not console.is_terminal:
        console.print(shown.picture())
        return
    with Live(shown.picture(), console=console, auto_refresh=False) as live:
        try:
            while True:
                time.sleep(watching.pause)
                if shown.look():
                    live.update(shown.picture(), refresh=True)
        except KeyboardInterrupt:
            return


def _overview(subjects: Sequence[dict[str, Section]]) -> Table:
    """A line for every run: where it is, how good it is, and how it came there."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("what", overflow="fold")
    for heading in ("round", "left", "mean", "worst", "loss", "MB"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("over rounds", no_wrap=True)
    table.add_column("", overflow="fold")
    for subject in subjects:
        progress, quality = subject["progress"], subject.get("quality", {})
        measure = quality.get("measure", {"percent": True})
        lines = [line for line in quality.get("lines", []) if line["values"]]
        losses = [line["values"][-1] for line in subject.get("losses", {}).get("lines", []) if line["values"]]
        known = [loss for loss in losses if loss is not None]
        table.add_row(
            Text(subject["about"]["title"]),
            f"{progress['done']}/{progress['rounds']}",
            duration(progress.get("left")),
            _value(quality.get("mean"), measure),
            _value(quality.get("worst"), measure),
            f"{sum(known) / len(known):.3f}" if known else "",
            f"{subject.get('traffic', {}).get('total', 0) / 1e6:.1f}",
            sparkline(_mean_line(lines)),
            Text(progress["says"] or progress["phase"]),
        )
    return table


def _details(subject: dict[str, Section]) -> list[RenderableType]:
    """Of one run alone: every group, the strip of heads, the guard, what the logs say."""
    parts: list[RenderableType] = []
    quality = subject.get("quality", {})
    groups = Table(box=None, pad_edge=False, header_style="bold")
    for heading in (quality.get("measure", {}).get("word", ""), "now", "over rounds", "training loss"):
        groups.add_column(heading, no_wrap=True)
    losses = {line["name"]: line["values"] for line in subject.get("losses", {}).get("lines", [])}
    for line in quality.get("lines", []):
        known = [line["final"]] if line.get("final") is not None else line["values"][-1:]
        loss = losses.get(line["name"], [])
        now = _value(known[0] if known else None, quality["measure"])
        groups.add_row(line["name"], now, sparkline(line["values"]), sparkline(loss))
    if groups.row_count:
        parts += [Text(""), groups]
    if "columns" in subject.get("heads", {}):
        parts += [Text(""), _strip(subject["heads"])]
    if "guard" in subject:
        guard = subject["guard"]
        most = ", ".join(f"{one['name']} ({one['count']})" for one in guard["most"])
        dropped = f"most often dropped: {most}" if most else "nothing has been dropped"
        parts.append(Text(f"\nGuard {guard['rule']}: {dropped}; the last gate closed {guard['closed']} times."))
    for row in subject.get("events", {}).get("rows", [])[:8]:
        at = time.strftime("%H:%M:%S", time.localtime(row["at"]))
        parts.append(Text(f"{at}  {row['site']}  {row['says']}", style="dim"))
    return parts


def _sites(subject: dict[str, Section]) -> Table:
    """A line for every site."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("site")
    for heading in ("round", "now", "head", "heard", "late", "missed", "refused", "dropped", "left"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    measure = subject["quality"]["measure"]
    for row in subject["sites"]["rows"]:
        counts = [str(row.get(name, "")) for name in ("heard", "late", "missed", "refused", "dropped")]
        head = "" if row.get("head") is None else str(row["head"])
        where = f"{row['done']}/{row['rounds']}" if row["here"] else ""
        table.add_row(
            row["id"], where, _value(row.get("value"), measure), head, *counts, duration(row.get("left")),
            Text(row["state"]),
        )  # fmt: skip
    return table


def _strip(heads: Section) -> Text:
    """A row for all nodes that stand together and chose alike: a letter and a colour for the head of every round."""
    text = Text()
    step = max(1, -(-len(heads["columns"]) // 60))
    columns = heads["columns"][step - 1 :: step] or heads["columns"][-1:]
    alike = itertools.groupby(heads["rows"], key=lambda row: "".join(column[row["place"]] for column in columns))
    rows = [(letters, [row["name"] for row in group]) for letters, group in alike]
    for letters, names in rows[:_MOST_ROWS]:
        text.append(f"{names[0] + (f' to {names[-1]}' if len(names) > 1 else ''):>18.18} ")
        for letter in letters:
            text.append(letter, style=_HEADS[int(letter, 36) % len(_HEADS)] if letter != "." else "dim")
        text.append("\n")
    if len(rows) > _MOST_ROWS:
        text.append(f"{len(rows) - _MOST_ROWS} more rows: the page shows all\n", style="dim")
    return text


def _mean_line(lines: Sequence[Section]) -> list[float | None]:
    """The mean of several lines, point by point."""
    longest = max((len(line["values"]) for line in lines), default=0)
    each = [[line["values"][i] for line in lines if i < len(line["values"])] for i in range(longest)]
    known = [[value for value in values if value is not None] for values in each]
    return [sum(values) / len(values) if values else None for values in known]


def sparkline(values: Sequence[float | None]) -> str:
    """Values as bars from the lowest to the highest."""
    known = [value for value in values if value is not None]
    step = max(1, -(-len(known) // _WIDTH))
    few = known[::-1][::step][::-1]
    if not few:
        return ""
    low, high = min(few), max(few)
    reach = (high - low) or 1.0
    return "".join(_BARS[min(len(_BARS) - 1, int((value - low) / reach * len(_BARS)))] for value in few)


def duration(seconds: Any) -> str:
    """Seconds as people say them; nothing for None."""
    if seconds is None:
        return ""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _value(value: Any, measure: Section) -> str:
    if value is None:
        return ""
    return f"{100 * value:.1f} %" if measure["percent"] else f"{value:.3f}"
