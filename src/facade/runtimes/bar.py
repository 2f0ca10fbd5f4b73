"""A bar for those who call `facade.run` in a terminal or a notebook."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from facade.analysis.measures import ACCURACY, MEASURES
from facade.core.names import short
from facade.core.types import Row
from facade.experiment.config import Experiment
from facade.runs.measure_facts import few_values
from facade.runs.training_facts import never_learned_in_words
from facade.runtimes.recorder import Quiet


class Bar(Quiet):
    """The rounds of one run, and how good its clusters were when they were last tested."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._task: TaskID | None = None
        self._by = ACCURACY

    def start(self, experiment: Experiment, done: int) -> None:
        name, rounds = short(experiment.algorithm["name"]), experiment.training.rounds
        self._by = MEASURES[experiment.evaluation.measure]
        self._task = self._bars.add_task(name, total=rounds, completed=done, values="")

    def round(self, done: int, rounds: int) -> None:
        if self._task is not None:
            self._bars.update(self._task, completed=done)

    def evaluated(self, done: int, judged: Row, final: bool) -> None:
        if self._task is not None:
            self._bars.update(self._task, values=self._by.series(few_values(judged["measured"], self._by)))

    def finish(self, summary: Row) -> None:
        if facts := summary.get("never_learned"):
            self._bars.console.print(never_learned_in_words(facts), style="yellow")


@contextlib.contextmanager
def shown_bar(console: Console | None = None) -> Iterator[Bar | None]:
    """A bar on standard error for the time of a run; None where nobody would see it: standard error is no terminal, and
    this is no notebook."""
    console = Console(stderr=True, markup=False, highlight=False, emoji=False) if console is None else console
    if not (console.is_terminal or console.is_jupyter):
        yield None
        return
    name, values = TextColumn("{task.description}"), TextColumn("{task.fields[values]}")
    time = TimeRemainingColumn(elapsed_when_finished=True)
    with Progress(name, BarColumn(), MofNCompleteColumn(), values, time, console=console) as bars:
        yield Bar(bars)
