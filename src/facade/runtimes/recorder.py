"""What every simulation does besides computing: files, checkpoints, progress, stopping, summing up.

A runtime is a way of computing: given a `Recorder`, it asks where to start, hands over rows as they
come, and ends with what is left of the nodes.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, Protocol, TypedDict

from safetensors.torch import load_file

from facade.analysis.measures import MEASURES
from facade.core import tree
from facade.core.types import Row
from facade.data.federation import Federation
from facade.errors import ExperimentError, RunDirectoryError, StoppedError
from facade.experiment.config import Experiment
from facade.experiment.own_code import own_code
from facade.experiment.setup import Setup, set_up
from facade.runs import state_files
from facade.runs.checkpoint import Checkpoint, Checkpoints
from facade.runs.environment import CODE, environment
from facade.runs.guard_facts import GuardSums, backdoor_facts
from facade.runs.honest_nodes import of_honest
from facade.runs.measure_facts import measure_facts, measured
from facade.runs.moments import Moments
from facade.runs.result import Result, health_of_heads, judge
from facade.runs.rows import by_moment, in_order, without_collecting
from facade.runs.run_directory import RunDirectory
from facade.runs.running_summary import RunningSummary
from facade.runs.state_files import PiecewiseTree
from facade.runs.stop_signals import StopSignals


class Progress(Protocol):
    """Someone who watches a run."""

    def start(self, experiment: Experiment, done: int) -> None:
        """A run begins; a resumed one has `done` rounds behind it."""

    def round(self, done: int, rounds: int) -> None:
        """A round is over."""

    def evaluated(self, done: int, judged: Row, final: bool) -> None:
        """An evaluation is over; `judged` holds its metrics, by accuracy; `measured`, what clusters or sites come to by
        the measure that counts; and, where known, which heads are dead or alike. `final`: after the final exchange."""

    def finish(self, summary: Row) -> None:
        """The run is complete; `summary` is what result.json holds."""


class Quiet:
    """Nobody watches; also a base for those who watch some of it."""

    def start(self, experiment: Experiment, done: int) -> None:
        pass

    def round(self, done: int, rounds: int) -> None:
        pass

    def evaluated(self, done: int, judged: Row, final: bool) -> None:
        pass

    def finish(self, summary: Row) -> None:
        pass


class FinalState(NamedTuple):
    """What is left of all nodes at the end, wherever it lies."""

    models: PiecewiseTree
    model_digests: list[str]
    """SHA-256 of every node's model."""
    state_digests: list[str]


Compute = Callable[["Recorder"], Result]
"""Plays a run from where `Recorder.start` says to what `Recorder.finish` makes of it."""


class RunOptions(TypedDict, total=False):
    """What every runtime lets its callers say, as `facade.run` describes it."""

    resume: bool
    federation: Federation | None
    progress: Progress | None
    stop_signals: StopSignals | None
    """Those that are listened to already."""


def record(
    experiment: Experiment,
    out: str | Path | None,
    runtime: Callable[[Setup], Compute],
    *,
    resume: bool = False,
    federation: Federation | None = None,
    progress: Progress | None = None,
    stop_signals: StopSignals | None = None,
) -> Result:
    """Run an experiment on a runtime; with `out`, write a run directory. Nothing is written before the
    experiment, its data and the runtime have been found good."""
    files = None if out is None else RunDirectory(Path(out))
    if files is not None:
        files.check(experiment, resume)
        if files.finished:
            with contextlib.suppress(RunDirectoryError), files.claimed():  # whoever just ends it tidies up
                _tidy(files)
            return _loaded(files, federation)
    elif resume:
        raise ExperimentError("there is nothing to resume without a run directory; name it, or leave resume out")
    setup = set_up(experiment, federation)
    compute = runtime(setup)
    if files is None:
        return compute(Recorder(setup, None, progress, stop_signals))
    with files.claimed(), contextlib.nullcontext(stop_signals) if stop_signals else StopSignals().listening() as rings:
        files.check(experiment, resume)  # another process may have been here meanwhile
        if files.finished:
            _tidy(files)
            return _loaded(files, federation)
        return compute(Recorder(setup, files, progress, rings))


def _loaded(files: RunDirectory, federation: Federation | None) -> Result:
    """A finished run; RunDirectoryError if it was computed on other data than are given now."""
    if federation is not None:
        files.check_data(federation)
    return Result.load(files.path)


def _tidy(files: RunDirectory) -> None:
    Checkpoints(files).remove()  # a crash after the summary was written leaves them


class Recorder:
    """Keeps rows, writes them and checkpoints, and tells whoever watches."""

    def __init__(
        self,
        setup: Setup,
        files: RunDirectory | None,
        progress: Progress | None,
        stop_signals: StopSignals | None = None,
    ) -> None:
        self.setup = setup
        self._files = files
        self._progress = progress or Quiet()
        self._stop_signals = stop_signals
        self._forget()
        self._kept = 0
        """Rounds that a checkpoint holds."""
        self._started = self._lap = time.perf_counter()

    def start(self, threads: int | None = None) -> Checkpoint | None:
        """Begin the run's files, or cut them back to the checkpoint from which the run continues. `threads`: those that
        compute a node, where the learner of this process does not."""
        self._forget()
        setup, files = self.setup, self._files
        where = environment(setup.learner.threads if threads is None else threads, setup.learner.executor.name)
        if code := own_code(setup.experiment.model_dump()):
            where[CODE] = code
        checkpoint = None if files is None else Checkpoints(files).restore()
        if files is not None and checkpoint is not None:
            files.resume(setup.federation, where, checkpoint.round, checkpoint.environment)
            with without_collecting():
                self._sum_up(files.rows)
        self._kept = checkpoint.round if checkpoint else 0
        self._progress.start(setup.experiment, self._kept)  # a tracker that cannot begin leaves no run behind
        if files is not None and checkpoint is None:
            files.begin(setup.experiment, setup.federation, where)
        self._lap = time.perf_counter()
        self._started = self._lap - (checkpoint.seconds if checkpoint else 0)
        return checkpoint

    def add(self, rows: list[Row]) -> None:
        """Take the rows that all shards made since the last call."""
        if not rows:
            return
        with self.setup.learner.stopwatch.phase("record"):
            rows = in_order(rows)
            self.keep(rows)
        self.show(rows)
        if rows[-1]["kind"] != "round":
            self._time(rows[-1]["round"])

    def keep(self, rows: list[Row]) -> None:
        """Write rows, which are in order, or hold them where there are no files."""
        self._sum_up(rows)
        if self._files is None:
            self._rows += rows
        else:
            self._files.append("rows.jsonl", rows)

    def _forget(self) -> None:
        """Know of no row."""
        bad = self.setup.experiment.attack.nodes
        self._rows: list[Row] = []  # of a run without files
        self._summed, self._guarded = RunningSummary(bad), GuardSums(self.setup)
        self._moments = Moments(self.setup.federation.n, bad)

    def _sum_up(self, rows: Iterable[Row]) -> None:
        """Take in rows, in order, for what is said of the run at its end: then they are not read again."""
        for moment in by_moment(rows):
            self._summed.add(moment)
            self._guarded.add(moment)
            if self._files is not None:
                self._moments.add(moment)

    def show(self, rows: list[Row]) -> None:
        """Tell whoever watches of the rows, in order, that all nodes made since the last call."""
        done, federation, experiment = rows[-1]["round"], self.setup.federation, self.setup.experiment
        by, bad = MEASURES[experiment.evaluation.measure], experiment.attack.nodes
        for kind in ("evaluation", "final"):  # without a final exchange, both come at once
            tested = [row for row in rows if row["kind"] == kind]
            if tested:
                heads = health_of_heads(list(of_honest((row for row in rows if row["kind"] == "round"), bad)))
                judged = judge(tested, federation.cluster, bad, federation.sites) | heads
                judged["measured"] = measured(list(of_honest(tested, bad)), federation, by)
                self._progress.evaluated(done, judged, final=kind == "final")
        self._progress.round(done, self.setup.plan.rounds)

    def between_rounds(self, round: int, state: Callable[[], PiecewiseTree]) -> None:
        """Checkpoint after every evaluation, and when somebody asks the run to stop."""
        stopping = self._stop_signals is not None and self._stop_signals.received is not None
        if self._files is not None and (stopping or self._is_due(round)):
            if stopping:
                self._time(round)  # of the rounds since the last evaluation
            with self.setup.learner.stopwatch.phase("checkpoint"):
                Checkpoints(self._files).save(round, state(), time.perf_counter() - self._started)
                self._kept = round
        if stopping:
            self.raise_if_stopped()

    def _is_due(self, round: int) -> bool:
        return round > self._kept and self.setup.plan.evaluates(round)

    def raise_if_stopped(self) -> None:
        """Leave with StoppedError if somebody asked the run to stop; what was computed up to the last
        checkpoint is kept."""
        if self._stop_signals is not None and self._stop_signals.received is not None:
            sentence = f"stopped after round {self._kept} of {self.setup.plan.rounds}; {self._way_on()}"
            raise StoppedError(sentence, self._stop_signals.received)

    def finish(self, final: FinalState, facts: Row | None = None) -> Result:
        """Sum up the run from its rows and what is left of the nodes; `facts` are added to the summary."""
        setup, files = self.setup, self._files
        seconds = time.perf_counter() - self._started
        summary = self._summary() | {
            "seconds": seconds,
            "model_sha256": tree.joint(final.model_digests),
            "state_sha256": tree.joint(final.state_digests),
            "run_dir": None if files is None else str(files.path),
            **(facts or {}),
        }
        if files is None:
            models, path = state_files.joined(final.models), None
        else:
            files.finish(final.models, self._moments, summary)
            Checkpoints(files).remove()
            models, path = load_file(files.path / "models.safetensors"), files.path
        self._progress.finish(summary)
        rows = self._rows if files is None else files.rows
        return Result(setup.experiment, rows, summary, models, setup.learner, path, setup.federation.cluster)

    def _summary(self) -> Row:
        """What the rows of the finished run say."""
        federation, finals = self.setup.federation, self._summed.finals
        summary = self._summed.facts(federation.cluster, federation.sites) | self._guarded.facts()
        summary["measures"] = measure_facts(finals, federation)
        if federation.triggered is not None:
            summary |= backdoor_facts(finals, federation.cluster)
        return summary

    def _way_on(self) -> str:
        if self._files is None:
            return "without a run directory nothing is kept"
        if self.setup.experiment.data.source == "given":
            return f"continue with run(experiment, '{self._files.path}', resume=True, federation=...)"
        return f"continue with: {self._files.resume_command}"

    def _time(self, done: int) -> None:
        now = time.perf_counter()
        lap = {"round": done, "seconds": now - self._lap} | self.setup.learner.stopwatch.lap()
        self._lap = now
        if self._files is not None:
            self._files.append("timings.jsonl", [lap])
