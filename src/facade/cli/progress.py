"""What a person sees while runs are computed: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from facade.analysis.measures import ACCURACY, MEASURES
from facade.cli.console import err
from facade.cli.display import health
from facade.core.names import short
from facade.core.types import Row
from facade.data.clusters import cluster_names
from facade.runs.honest_nodes import attack_in_words
from facade.runs.measure_facts import few_values

if TYPE_CHECKING:
    from facade.data.section import DataSection
    from facade.experiment.config import Experiment
    from facade.sweep.jobs import Job
    from facade.sweep.process_pool import EndedJob


WIDE = 100
"""Columns of a terminal that has room for names and values beside a bar and its time."""
PRINT_SECONDS = 60.0
"""Seconds between two lines on a run of a sweep where there is no terminal."""


class _Bars:
    """Bars that are drawn inside a with block, and only on a terminal."""

    def __init__(self, console: Console, *columns: ProgressColumn) -> None:
        self._console = console
        self._bars = Progress(*columns, console=console, disable=not console.is_terminal)

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()


class RunProgress(_Bars):
    """A run, or one after the other: a bar or a block of lines each."""

    def __init__(self, console: Console) -> None:
        super().__init__(
            console,
            TextColumn("{task.description:>8}"),
            BarColumn(bar_width=24, table_column=_whole()),
            MofNCompleteColumn(table_column=_whole()),
            TextColumn("{task.fields[values]}", table_column=Column()),  # many clusters may take a second line
            TimeRemainingColumn(elapsed_when_finished=True, table_column=_whole()),
        )
        self._data: DataSection | None = None
        self._by = ACCURACY
        self._label = ""
        self._task: TaskID | None = None
        self._rounds = 0
        self._health: str | None = None

    def start(self, experiment: Experiment, done: int) -> None:
        self._label = short(experiment.algorithm["name"])
        self._rounds, self._data = experiment.training.rounds, experiment.data
        self._by = MEASURES[experiment.evaluation.measure]
        self._health = None
        self._task = self._bars.add_task(self._label, total=self._rounds, completed=done, values="")
        if done:
            self._console.print(f"{self._label:>8}  continuing after round {done}")
        if experiment.n and (attack := attack_in_words(experiment.model_dump(), experiment.n)) is not None:
            self._console.print(f"{self._label:>8}  {attack}.", soft_wrap=True)

    def round(self, done: int, rounds: int) -> None:
        if self._task is not None:
            self._bars.update(self._task, completed=done)

    def evaluated(self, done: int, judged: Row, final: bool) -> None:
        """Show what clusters come to by the measure that counts; where they are not known, all sites and the worst."""
        values = few_values(judged["measured"], self._by)
        named = self._named(judged["measured"], values)
        if self._console.is_terminal and self._task is not None:
            crowded = len(values) > 2 or self._console.width < WIDE
            self._bars.update(self._task, values=self._by.series(values) if crowded else named)
        else:
            moment = "after the end" if final else f"round {done:>3}/{self._rounds}"
            self._console.print(f"{self._label:>8}  {moment:>13}  {named}", soft_wrap=True)
        warning = health(judged)
        if warning and warning != self._health and not final:
            self._console.print(f"{self._label:>8}  {warning}", style="yellow", soft_wrap=True)
        self._health = warning

    def _named(self, measured: Row, values: Sequence[float | None]) -> str:
        """Values with the names of what they are of."""
        if "clusters" in measured and self._data is not None:
            names = cluster_names([self._data.sizes], len(values))
        else:
            places = {value: name for name, value in reversed(measured["sites"].items())}
            names = ["sites", f"worst ({places[values[1]]})"]
        shown = ["-" if value is None else self._shown(value) for value in values]
        word = "" if self._by == ACCURACY else f"{self._by.word}: "
        return word + "  ".join(f"{name} {value:>6}" for name, value in zip(names, shown, strict=True))

    def _shown(self, value: float) -> str:
        return f"{value:.1%}" if self._by.percent else self._by.value(value)

    def finish(self, summary: Row) -> None:
        pass


class SweepProgress(_Bars):
    """A sweep, and each run of it that is under way."""

    def __init__(self, runs: int, finished: int) -> None:
        values = [TextColumn("{task.fields[values]}")] if err.width >= WIDE else []
        bar, counts, time_left = BarColumn(bar_width=24), MofNCompleteColumn(), TimeRemainingColumn()
        super().__init__(err, TextColumn("{task.description}"), bar, counts, *values, time_left)
        self._runs, self._count = runs, finished
        self._all = self._bars.add_task("runs", total=runs, completed=finished, values="")
        self._tasks: dict[Path, TaskID] = {}
        self._printed: dict[Path, float] = {}
        """When a run's last line was printed, or it began."""
        self._values: dict[Path, str] = {}
        """How good it was when it was last tested."""

    def rounds_done(self, job: Job, event: Row) -> None:
        """A run has done some of its rounds, and may have been tested after them."""
        rounds = job.experiment.training.rounds
        if job.path not in self._tasks:
            self._tasks[job.path] = self._bars.add_task(job.path.name, total=rounds, values="")
            self._printed[job.path] = monotonic()
        self._bars.update(self._tasks[job.path], completed=event["done"])
        if "values" in event:
            values = MEASURES[job.experiment.evaluation.measure].series(event["values"])
            self._bars.update(self._tasks[job.path], values=values)
            self._values[job.path] = f"  {values} after {event['done']}"
        if not self._console.is_terminal and monotonic() - self._printed[job.path] >= PRINT_SECONDS:
            self._printed[job.path] = monotonic()
            values = self._values.get(job.path, "")
            self._console.print(f"{job.path.name}  round {event['done']}/{rounds}{values}", soft_wrap=True)

    def ended(self, end: EndedJob) -> None:
        """A run is over."""
        if end.job.path in self._tasks:
            self._bars.remove_task(self._tasks.pop(end.job.path))
        self._count += end.ended == "finished"
        self._bars.update(self._all, completed=self._count)
        reason = f": {end.reason}" if end.reason else ""
        self._console.print(f"{self._count}/{self._runs}  {end.job.path.name} {end.ended}{reason}", soft_wrap=True)


def _whole() -> Column:
    """A column of the bars that gives no room to others."""
    return Column(no_wrap=True)
