"""Runs on small data, driven step by step, with all that passes between the round loop and its driver."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from facade.core import tree
from facade.core.engine import drive, play
from facade.core.messages import Edges, Everyone, Inbox, Post
from facade.core.turn import Shard, Turn
from facade.core.types import Row
from facade.data.federation import Federation
from facade.data.load import load
from facade.data.section import DataSection
from facade.experiment.config import Experiment
from facade.experiment.setup import Setup, set_up
from facade.runs.result import Result
from facade.runs.rows import in_order
from facade.runtimes.local import deliver, run, side_by_side


def _federation(experiment: Experiment) -> Federation:
    return _loaded(experiment.data.model_dump_json(), experiment.seed)


@functools.cache
def _loaded(data: str, seed: int) -> Federation:
    whole = load(DataSection.model_validate_json(data), seed)
    return dataclasses.replace(whole, tests=[test[::8] for test in whole.tests])


def prepared(experiment: Experiment) -> Setup:
    """The parts of the run; data are loaded once for all checks, an eighth of the test data is used."""
    return set_up(experiment, _federation(experiment))


def result_of(experiment: Experiment) -> Result:
    """The finished run, on the same data."""
    return run(experiment, federation=_federation(experiment))


class DrivenRun(NamedTuple):
    """A run and all that passed between the round loop and its driver."""

    posts: list[list[Post]]
    """Per exchange, one post of every shard."""
    last_rows: list[list[Row]]
    """Per shard, the rows it ended with."""
    state: Any
    """[n, ...] the state at the end."""

    def rows(self, after: int = -1) -> list[Row]:
        """Rows made after the given exchange, in the order of a run's file."""
        posted = [row for posts in self.posts[after + 1 :] for post in posts for row in post.rows]
        return in_order(posted + [row for rows in self.last_rows for row in rows])

    def states(self) -> list[Any]:
        """[n, ...] before every round, before the final exchange if there is one, and at the end."""
        return [tree.concat([post.state for post in posts]) for posts in self.posts] + [self.state]


def driven(
    setup: Setup, start: Sequence[tuple[int, Any]] | None = None, watch: Callable[[list[Post]], object] = id
) -> DrivenRun:
    """Play a run to its end, from the beginning or from one (round, state) per shard; `watch` is called with the posts
    of every exchange as they are made."""
    shards, exchanges = setup.shards(), list[list[Post]]()
    starts: Sequence[tuple[int, Any] | None] = [None] * len(shards) if start is None else start
    rounds = [
        play(setup.algorithm, shard, setup.plan, setup.federation, begin)
        for shard, begin in zip(shards, starts, strict=True)
    ]

    def exchange(posts: list[Post]) -> list[Inbox]:
        exchanges.append(posts)
        watch(posts)
        return deliver(posts, shards)

    ends = drive(side_by_side(rounds), exchange)
    return DrivenRun(exchanges, [end.rows for end in ends], tree.concat([end.state for end in ends]))


def one_turn(setup: Setup, round: int) -> Turn:
    """A round as a process that hosts all nodes sees it."""
    shard = setup.shard(np.arange(setup.federation.n))
    return setup.plan.turn(shard, round)


def inbox_of(shard: Shard, message: Any, edges: Edges | Everyone) -> Inbox:
    """What arrives at a process that hosts all nodes."""
    return deliver([Post(0, message, edges, None)], [shard])[0]
