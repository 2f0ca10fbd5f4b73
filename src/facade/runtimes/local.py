"""All nodes in this process: the simulator."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

from facade import tree
from facade.config import Experiment
from facade.data.federation import Federation
from facade.engine import Played, Shard, play
from facade.messages import Inbox, Post
from facade.records import Row, RunDirectory, environment, in_order
from facade.result import Result, judge, summarise
from facade.setup import Setup, set_up


class Progress(Protocol):
    """Someone who watches a run."""

    def round(self, done: int, rounds: int) -> None:
        """A round is over."""

    def evaluated(self, done: int, judged: Row, final: bool) -> None:
        """An evaluation is over; `judged` holds its metrics. `final`: after the last exchange."""


class Quiet:
    """Nobody watches."""

    def round(self, done: int, rounds: int) -> None:
        pass

    def evaluated(self, done: int, judged: Row, final: bool) -> None:
        pass


def run(
    experiment: Experiment,
    out: str | Path | None = None,
    *,
    federation: Federation | None = None,
    progress: Progress | None = None,
) -> Result:
    """Run an experiment with all nodes in this process; with `out`, write a run directory."""
    started = time.perf_counter()
    if out is not None:
        RunDirectory.check_free(Path(out), experiment)
    setup = set_up(experiment, federation)
    shards = setup.shards()
    games = [play(setup.algorithm, s, setup.plan, setup.federation, (0, setup.algorithm.init(s))) for s in shards]
    directory = None
    if out is not None:
        where = environment(setup.learner.threads, setup.learner.executor.name)
        directory = RunDirectory.create(Path(out), experiment, setup.federation, where)
    recorder = _Recorder(setup, directory, progress or Quiet())
    state = _drive(games, shards, recorder)
    models = setup.algorithm.model(state)
    summary = summarise(recorder.rows, setup.federation.cluster) | {
        "seconds": time.perf_counter() - started,
        "model_sha256": tree.digest(models, setup.federation.n),
        "state_sha256": tree.digest(state, setup.federation.n),
        "run_dir": None if directory is None else str(directory.path),
    }
    if directory is not None:
        directory.finish(models, summary)
    return Result(experiment, recorder.rows, summary, models, setup.learner, directory.path if directory else None)


def _drive(games: Sequence[Generator[Post, Inbox, Played]], shards: list[Shard], recorder: _Recorder) -> Any:
    """Carry posts to inboxes until the games are over; the final state of all nodes."""
    posts = [next(game) for game in games]
    while True:
        recorder.add([row for post in posts for row in post.rows])
        ended: list[Played] = []
        moves: list[Post] = []
        for game, inbox in zip(games, deliver(posts, shards), strict=True):
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
    """Keeps rows, writes them, and tells whoever watches."""

    def __init__(self, setup: Setup, directory: RunDirectory | None, progress: Progress) -> None:
        self.rows: list[Row] = []
        self._setup = setup
        self._directory = directory
        self._progress = progress
        self._lap = time.perf_counter()

    def add(self, rows: list[Row]) -> None:
        """Take the rows that all shards made since the last call."""
        if not rows:
            return
        watch = self._setup.learner.stopwatch
        with watch.phase("record"):
            rows = in_order(rows)
            self.rows += rows
            if self._directory is not None:
                self._directory.append("rows.jsonl", rows)
        done = rows[-1]["round"]
        tested = [row for row in rows if row["kind"] == rows[-1]["kind"] != "round"]
        if tested:
            self._time(done)
            final = tested[0]["kind"] == "final"
            self._progress.evaluated(done, judge(tested, self._setup.federation.cluster), final)
        self._progress.round(done, self._setup.plan.rounds)

    def _time(self, done: int) -> None:
        now = time.perf_counter()
        lap = {"round": done, "seconds": now - self._lap} | self._setup.learner.stopwatch.lap()
        self._lap = now
        if self._directory is not None:
            self._directory.append("timings.jsonl", [lap])
