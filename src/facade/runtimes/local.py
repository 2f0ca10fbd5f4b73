"""All nodes in this process: the simulator."""

from __future__ import annotations

import functools
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import torch

from facade.core import tree
from facade.core.engine import Played, Shard, play
from facade.core.messages import Inbox, Post, delivered
from facade.data.federation import Federation
from facade.experiment.config import Experiment
from facade.experiment.setup import Setup
from facade.learning.torch_threads import one_intra_op_thread
from facade.runs import state_files
from facade.runs.checkpoint import Checkpoint
from facade.runs.result import Result
from facade.runs.state_files import Stack
from facade.runs.stop_signals import Bell
from facade.runtimes.recorder import Final, Progress, Recorder, record


def run(
    experiment: Experiment,
    out: str | Path | None = None,
    *,
    resume: bool = False,
    federation: Federation | None = None,
    progress: Progress | None = None,
    bell: Bell | None = None,
) -> Result:
    """Run an experiment with all nodes in this process; with `out`, write a run directory.

    With `resume`, a run that the directory holds is continued from its newest checkpoint, to the
    same bits as if it had never stopped; a complete one is loaded. `bell`: one that is listening already.
    """
    return record(
        experiment,
        out,
        lambda setup: _Here(setup).compute,
        resume=resume,
        federation=federation,
        progress=progress,
        bell=bell,
    )


class _Here:
    """The shards of a run, one after the other in this process."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._shards = setup.shards()
        self._fresh = [setup.algorithm.init(shard) for shard in self._shards]

    def compute(self, recorder: Recorder) -> Result:
        """Play the run to its end."""
        setup, starts = self._setup, self._starts(recorder.start())
        games = [
            play(setup.algorithm, shard, setup.plan, setup.federation, start)
            for shard, start in zip(self._shards, starts, strict=True)
        ]
        with one_intra_op_thread():
            state = _drive(games, self._shards, recorder)
        models, n = setup.algorithm.model(state), setup.federation.n
        return recorder.finish(Final(state_files.here(models), tree.digests(models, n), tree.digests(state, n)))

    def _starts(self, checkpoint: Checkpoint | None) -> list[tuple[int, Any]]:
        fresh, self._fresh = self._fresh, []  # not kept alive through the whole run
        if checkpoint is None:
            return [(0, state) for state in fresh]
        return [checkpoint.of(shard.nodes).like(state) for shard, state in zip(self._shards, fresh, strict=True)]


def _drive(games: Sequence[Generator[Post, Inbox, Played]], shards: list[Shard], recorder: Recorder) -> Any:
    """Carry posts to inboxes until the games are over; the final state of all nodes."""
    posts = [next(game) for game in games]
    while True:
        recorder.add([row for post in posts for row in post.rows])
        recorder.between_rounds(posts[0].round, functools.partial(_states, posts))
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


def _states(posts: list[Post]) -> Stack:
    return state_files.here(tree.concat([post.state for post in posts]))


def deliver(posts: list[Post], shards: list[Shard]) -> list[Inbox]:
    """Hand every message to those who want it. Nothing is copied for one shard: its outbox is the
    pool."""
    pool = tree.concat([post.outbox for post in posts])
    senders = torch.arange(shards[0].n)
    return [
        Inbox(pool, senders, torch.from_numpy(shard.nodes), delivered(post.wanted, senders))
        for post, shard in zip(posts, shards, strict=True)
    ]
