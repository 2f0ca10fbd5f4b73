"""All nodes in this process: the simulator."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, Unpack

import torch

from facade.core import tree
from facade.core.engine import Played, RoundLoop, drive, play
from facade.core.messages import Inbox, Post, delivered
from facade.core.turn import Shard
from facade.experiment.config import Experiment
from facade.experiment.setup import Setup
from facade.learning.torch_threads import one_intra_op_thread
from facade.runs import state_files
from facade.runs.checkpoint import Checkpoint
from facade.runs.result import Result
from facade.runs.state_files import PiecewiseTree
from facade.runtimes.recorder import FinalState, Recorder, RunOptions, record


def run(experiment: Experiment, out: str | Path | None = None, **options: Unpack[RunOptions]) -> Result:
    """Run an experiment with all nodes in this process; with `out`, write a run directory.

    With `resume`, a run that the directory holds is continued from its newest checkpoint, to the
    same bits as if it had never stopped; a complete one is loaded.
    """
    return record(experiment, out, lambda setup: Simulation(setup).compute, **options)


class Simulation:
    """The shards of a run, one after the other in this process."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._shards = setup.shards()
        self._fresh = [setup.algorithm.init(shard) for shard in self._shards]

    def compute(self, recorder: Recorder) -> Result:
        """Play the run to its end."""
        setup, starts = self._setup, self._starts(recorder.start())
        rounds = [
            play(setup.algorithm, shard, setup.plan, setup.federation, start)
            for shard, start in zip(self._shards, starts, strict=True)
        ]
        del starts  # which would keep the first states through the whole run

        def exchange(posts: list[Post]) -> list[Inbox]:
            recorder.add([row for post in posts for row in post.rows])
            recorder.between_rounds(posts[0].round, lambda: _states(posts))
            return deliver(posts, self._shards)

        with one_intra_op_thread():
            ends = drive(side_by_side(rounds), exchange)
        recorder.add([row for played in ends for row in played.rows])
        state = tree.concat([played.state for played in ends])
        models, n = setup.algorithm.model(state), setup.federation.n
        return recorder.finish(
            FinalState(state_files.in_one_piece(models), tree.digests(models, n), tree.digests(state, n))
        )

    def _starts(self, checkpoint: Checkpoint | None) -> list[tuple[int, Any]]:
        fresh, self._fresh = self._fresh, []  # not kept alive through the whole run
        if checkpoint is None:
            return [(0, state) for state in fresh]
        return [
            checkpoint.start_of(shard.nodes).unflattened(state)
            for shard, state in zip(self._shards, fresh, strict=True)
        ]


def side_by_side(
    rounds: Sequence[Generator[Post, Inbox, Played]],
) -> Generator[list[Post], list[Inbox], list[Played]]:
    """The rounds of several shards as those of one: all publish, then all are handed what arrived."""
    loops = [RoundLoop(each) for each in rounds]
    while posts := [loop.post for loop in loops if loop.post is not None]:
        inboxes = yield posts
        del posts  # and with them the states before the round
        for loop, inbox in zip(loops, inboxes, strict=True):
            loop.advance(inbox)
    return [loop.end for loop in loops if loop.end is not None]


def _states(posts: list[Post]) -> PiecewiseTree:
    return state_files.in_one_piece(tree.concat([post.state for post in posts]))


def deliver(posts: list[Post], shards: list[Shard]) -> list[Inbox]:
    """Hand every message to those who want it. Nothing is copied for one shard: its outbox is the
    pool."""
    pool = tree.concat([post.outbox for post in posts])
    senders = torch.arange(shards[0].n)
    return [
        Inbox(pool, senders, torch.from_numpy(shard.nodes), delivered(post.wanted, senders))
        for post, shard in zip(posts, shards, strict=True)
    ]


def among_all(shard: Shard) -> Callable[[Post], Inbox]:
    """The exchange of a shard that hosts every node."""
    return lambda post: deliver([post], [shard])[0]
