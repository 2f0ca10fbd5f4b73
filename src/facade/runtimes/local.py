"""All nodes in this process: the simulator."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

from facade import tree
from facade.checkpoint import Bell, Checkpoint, Checkpoints
from facade.config import Experiment
from facade.data.federation import Federation
from facade.engine import Played, Shard, play
from facade.errors import StoppedError
from facade.learner import one_intra_op_thread
from facade.messages import Inbox, Post
from facade.records import RunDirectory, environment, in_order
from facade.result import Result, judge, summarise
from facade.rows import Row
from facade.setup import Setup, set_up


class Progress(Protocol):
    """Someone who watches a run."""

    def start(self, experiment: Experiment, done: int) -> None:
        """A run begins; a resumed one has `done` rounds behind it."""

    def round(self, done: int, rounds: int) -> None:
        """A round is over."""

    def evaluated(self, done: int, judged: Row, final: bool) -> None:
        """An evaluation is over; `judged` holds its metrics. `final`: after the last exchange."""

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


def run(
    experiment: Experiment,
    out: str | Path | None = None,
    *,
    resume: bool = False,
    federation: Federation | None = None,
    progress: Progress | None = None,
) -> Result:
    """Run an experiment with all nodes in this process; with `out`, write a run directory.

    With `resume`, a run that the directory holds is continued from its newest checkpoint, to the
    same bits as if it had never stopped; a complete one is loaded.
    """
    files = None if out is None else RunDirectory(Path(out))
    if files is not None:
        files.check(experiment, resume)
        if files.finished:
            return _complete(files)
    setup = set_up(experiment, federation)
    shards = setup.shards()
    fresh = [setup.algorithm.init(shard) for shard in shards]
    if files is None:
        return _run(_Recorder(setup, None, progress), shards, [(0, state) for state in fresh])
    with files.claimed(), Bell().listening() as bell:
        files.check(experiment, resume)  # another process may have been here meanwhile
        if files.finished:
            return _complete(files)
        checkpoint = _begin(setup, files)
        starts = [checkpoint.start(s, f) if checkpoint else (0, f) for s, f in zip(shards, fresh, strict=True)]
        return _run(_Recorder(setup, files, progress, checkpoint, bell), shards, starts)


def _complete(files: RunDirectory) -> Result:
    Checkpoints(files).remove()  # a crash after the summary was written leaves them
    return Result.load(files.path)


def _begin(setup: Setup, files: RunDirectory) -> Checkpoint | None:
    """Start the run's files, or cut them back to the checkpoint from which the run continues."""
    where = environment(setup.learner.threads, setup.learner.executor.name)
    checkpoint = Checkpoints(files).restore()
    if checkpoint is None:
        files.begin(setup.experiment, setup.federation, where)
    else:
        files.check_same(setup.federation, where)
    return checkpoint


def _run(recorder: _Recorder, shards: list[Shard], starts: list[tuple[int, Any]]) -> Result:
    setup = recorder.setup
    games = [play(setup.algorithm, s, setup.plan, setup.federation, at) for s, at in zip(shards, starts, strict=True)]
    with one_intra_op_thread():
        return recorder.finish(_drive(games, shards, recorder))


def _drive(games: Sequence[Generator[Post, Inbox, Played]], shards: list[Shard], recorder: _Recorder) -> Any:
    """Carry posts to inboxes until the games are over; the final state of all nodes."""
    posts = [next(game) for game in games]
    while True:
        recorder.add([row for post in posts for row in post.rows])
        recorder.between_rounds(posts)
        ended: list[Played] = []
        moves: list[Post] = []
        inboxes = deliver(posts, shards)
        del posts  # and with them the states before the round
        for game, inbox in zip(games, inboxes, strict=True):
            try:
                moves.append(game.send(inbox))
            except StopIteration as end:
                ended.append(end.value)
        if ended:
            recorder.add([row for played in ended for row in played.rows])
            return tree.concat([played.state for played in ended])
        posts = moves


def deliver(posts: list[Post], shards: list[Shard]) -> list[Inbox]:
    """Hand every message to those who want it. Nothing is copied for one shard: its outbox is the
    pool."""
    pool = tree.concat([post.outbox for post in posts])
    senders = torch.arange(shards[0].n)
    return [
        Inbox(pool, senders, torch.from_numpy(shard.nodes), post.wanted)
        for post, shard in zip(posts, shards, strict=True)
    ]


class _Recorder:
    """Keeps rows, writes them and checkpoints, and tells whoever watches."""

    def __init__(
        self,
        setup: Setup,
        files: RunDirectory | None,
        progress: Progress | None,
        checkpoint: Checkpoint | None = None,
        bell: Bell | None = None,
    ) -> None:
        self.setup = setup
        self._files = files
        self._progress = progress or Quiet()
        self._bell = bell
        self._rows: list[Row] = []
        self._first = checkpoint.round if checkpoint else 0
        self._started = time.perf_counter() - (checkpoint.seconds if checkpoint else 0)
        self._lap = time.perf_counter()
        self._progress.start(setup.experiment, self._first)

    def add(self, rows: list[Row]) -> None:
        """Take the rows that all shards made since the last call."""
        if not rows:
            return
        with self.setup.learner.stopwatch.phase("record"):
            rows = in_order(rows)
            if self._files is None:
                self._rows += rows
            else:
                self._files.append("rows.jsonl", rows)
        done = rows[-1]["round"]
        tested = [row for row in rows if row["kind"] == rows[-1]["kind"] != "round"]
        if tested:
            self._time(done)
            final = tested[0]["kind"] == "final"
            self._progress.evaluated(done, judge(tested, self.setup.federation.cluster), final)
        self._progress.round(done, self.setup.plan.rounds)

    def between_rounds(self, posts: list[Post]) -> None:
        """Checkpoint after every evaluation, and when somebody asks the run to stop."""
        if self._files is None:
            return
        round = posts[0].round
        asked = self._bell.rung if self._bell else None
        if asked is not None or (round > self._first and self.setup.plan.evaluates(round)):
            with self.setup.learner.stopwatch.phase("checkpoint"):
                state = tree.concat([post.state for post in posts])
                Checkpoints(self._files).save(round, state, time.perf_counter() - self._started)
        if asked is not None:
            raise StoppedError(f"stopped after round {round} of {self.setup.plan.rounds}; {self._way_on()}", asked)

    def finish(self, state: Any) -> Result:
        """Sum up the run from its rows and the final state of all nodes."""
        setup, files = self.setup, self._files
        models = setup.algorithm.model(state)
        rows = self._rows if files is None else files.rows
        summary = summarise(rows, setup.federation.cluster) | {
            "seconds": time.perf_counter() - self._started,
            "model_sha256": tree.digest(models, setup.federation.n),
            "state_sha256": tree.digest(state, setup.federation.n),
            "run_dir": None if files is None else str(files.path),
        }
        if files is not None:
            files.finish(models, summary)
            Checkpoints(files).remove()
        self._progress.finish(summary)
        return Result(setup.experiment, rows, summary, models, setup.learner, files.path if files else None)

    def _way_on(self) -> str:
        path = self._files.path if self._files else None
        if self.setup.experiment.data.source == "given":
            return f"continue with run(experiment, '{path}', resume=True, federation=...)"
        return f"continue with: facade run {path}/experiment.toml --out {path} --resume"

    def _time(self, done: int) -> None:
        now = time.perf_counter()
        lap = {"round": done, "seconds": now - self._lap} | self.setup.learner.stopwatch.lap()
        self._lap = now
        if self._files is not None:
            self._files.append("timings.jsonl", [lap])
