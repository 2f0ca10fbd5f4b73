"""What a person sees in the terminal: progress, the results table, the strip of chosen heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from facade.clusters import cluster_names

if TYPE_CHECKING:
    from facade.config import Experiment

Row = dict[str, Any]

HEAD_STYLES = ("bold cyan", "bold yellow", "bold magenta", "bold green", "bold blue", "bold red")


class RunProgress:
    """Live bars on a terminal, plain lines elsewhere; one bar or block of lines per run."""

    def __init__(self, console: Console, sizes: Sequence[int]) -> None:
        self._console = console
        self._names = cluster_names([sizes], len(sizes))
        self._label = ""
        self._task: TaskID | None = None
        self._rounds = 0
        self._health: str | None = None
        self._bars = Progress(
            TextColumn("{task.description:>8}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[accuracy]}"),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def start(self, experiment: Experiment, done: int) -> None:
        self._label = experiment.algorithm["name"].rpartition(":")[2]
        self._rounds = experiment.training.rounds
        self._health = None
        self._task = self._bars.add_task(self._label, total=self._rounds, completed=done, accuracy="")
        if done:
            self._console.print(f"{self._label:>8}  continuing after round {done}")

    def round(self, done: int, rounds: int) -> None:
        if self._task is not None:
            self._bars.update(self._task, completed=done)

    def evaluated(self, done: int, judged: Row, final: bool) -> None:
        shares = judged.get("clusters") or [judged["all"]]
        names = self._names if "clusters" in judged else ["all"]
        accuracy = "  ".join(f"{name} {share:6.1%}" for name, share in zip(names, shares, strict=True))
        if self._console.is_terminal and self._task is not None:
            self._bars.update(self._task, accuracy=accuracy)
        else:
            moment = "after the end" if final else f"round {done:>3}/{self._rounds}"
            self._console.print(f"{self._label:>8}  {moment:>13}  {accuracy}")
        said = health(judged)
        if said and said != self._health and not final:
            self._console.print(f"{self._label:>8}  {said}", style="yellow", soft_wrap=True)
        self._health = said

    def finish(self, summary: Row) -> None:
        pass


def results_table(summaries: Mapping[str, Row], sizes: Sequence[int]) -> Table:
    """One line per algorithm, accuracies in percent, final models."""
    table = Table(title="Accuracy of the final models, in percent", title_justify="left", title_style="bold")
    table.box, table.padding, table.pad_edge = None, (0, 1, 0, 0), False
    table.add_column("algorithm", no_wrap=True)
    for name, size in zip(cluster_names([sizes], len(sizes)), sizes, strict=True):
        table.add_column(f"{name}\n{size} node{'s' if size > 1 else ''}", justify="right", no_wrap=True)
    for heading in ("\nall", "worst\nnode", "fair\nacc.", "\nDP", "\nEO", "MB per\nnode", "\nsettled", "\nsec."):
        table.add_column(heading, justify="right", no_wrap=True)
    best = max((s["fair_accuracy"] for s in summaries.values() if s["fair_accuracy"] is not None), default=None)
    for name, s in summaries.items():
        shares = (*s["clusters"], s["all"], s["worst_node"], s["fair_accuracy"])
        cells = ["-" if share is None else f"{share:.1%}"[:-1] for share in shares]
        cells += [_number(s["dp"]), _number(s["eo"]), f"{s['bytes_per_node'] / 1e6:.1f}"]
        cells += [_settled(s), f"{s['seconds']:.1f}"]
        table.add_row(
            name, *cells, style="bold" if s["fair_accuracy"] == best is not None and len(summaries) > 1 else None
        )
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _settled(summary: Row) -> str:
    if summary["settled"] is None:
        return "-"
    return "yes" if summary["settled"] else "apart" if summary["separated"] else "no"


def settlement(summary: Row, cluster: Sequence[int], sizes: Sequence[int]) -> str | None:
    """In words, what the choice of heads came to; None for algorithms without heads."""
    if summary["choice"] is None:
        return None
    if summary["settled"] is None:
        return f"{_served(summary)}; which nodes are of one kind, the experiment does not say."
    if summary["settled"]:
        return "Settled: every cluster found a head of its own."
    names = cluster_names([sizes], len(sizes))
    users: dict[int, list[str]] = {}
    for c, name in enumerate(names):
        for head in sorted({h for h, of in zip(summary["choice"], cluster, strict=True) if of == c}):
            users.setdefault(head, []).append(name)
    shared = [f"head {head} is shared by {' and '.join(who)}" for head, who in sorted(users.items()) if len(who) > 1]
    if shared:
        return f"Not settled: {'; '.join(shared)}. Clusters that share a head get no model of their own."
    return "Apart, but not settled: no head is shared, yet a cluster uses several heads."


def _served(summary: Row) -> str:
    """How many nodes every head serves, and how well."""
    counts = {head: sum(choice == int(head) for choice in summary["choice"]) for head in summary["heads"]}
    return ", ".join(
        f"head {head} serves {counts[head]} node{'' if counts[head] == 1 else 's'} at {share:.1%}"
        for head, share in summary["heads"].items()
    ).capitalize()


def health(summary: Row) -> str | None:
    """In words, heads that are dead or superfluous; None if there are none such. It needs no knowledge of
    clusters."""
    said = [f"Head {j} is dead since round {since}." for j, since in summary.get("dead_heads", {}).items()]
    said += [f"Heads {a} and {b} score alike." for a, b in summary.get("alike_heads", [])]
    return " ".join(said) or None


def head_strip(rows: Sequence[Row], sizes: Sequence[int], width: int) -> Text:
    """The head each node chose (its number), clusters side by side, at a few rounds of the run."""
    choices: dict[int, list[int]] = {}
    for row in rows:
        if row["kind"] == "round" and "choice" in row:
            choices.setdefault(row["round"], []).append(row["choice"])
    strip = Text()
    shown = min(sum(sizes), width - 16)
    for round in few_rounds(sorted(choices)):
        strip.append(f"  round {round:>4}  ", style="dim")
        left = shown
        for start, size in zip(_starts(sizes), sizes, strict=True):
            for head in choices[round][start : start + min(size, left)]:
                strip.append(str(head), style=HEAD_STYLES[head % len(HEAD_STYLES)])
            left -= min(size, left)
            strip.append("  ")
        strip.append("\n")
    return strip


def _starts(sizes: Sequence[int]) -> list[int]:
    return [sum(sizes[:i]) for i in range(len(sizes))]


def few_rounds(rounds: list[int]) -> list[int]:
    """At most nine rounds, closer together at the beginning, where heads are found."""
    wanted = {1, 5, 10, 11, 12, 15, 20, 30, 50, 100, 200, 400, 800, rounds[-1]} if rounds else set()
    kept = [r for r in rounds if r in wanted]
    return kept if len(kept) <= 9 else kept[-9:]
