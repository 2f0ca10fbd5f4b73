"""What runs will cost, from timing a little of each kind before they start."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from facade.core.engine import drive, play
from facade.core.messages import Inbox, Post
from facade.data.federation import Federation
from facade.errors import ExperimentError, FacadeError
from facade.experiment.config import Experiment
from facade.experiment.decisive_settings import decisive_settings
from facade.experiment.setup import set_up
from facade.learning.torch_threads import one_intra_op_thread
from facade.runs.history import hash_of
from facade.runtimes.local import among_all
from facade.sweep.jobs import Job

_FEW = 256
"""Test images per test set in a trial; the rest is extrapolated."""
_BRIEF = 5.0
"""Seconds of set-up that are worth measuring twice."""
_NO_MATTER = ("seed", "training.lr", "training.rounds", "evaluation.every")
"""Keys that do not change what a round or an evaluation costs."""


@dataclass(frozen=True)
class Price:
    """Seconds that a kind of run takes."""

    setup: float
    round: float
    evaluation: float

    def of(self, experiment: Experiment, done: int = 0) -> float:
        """Seconds for the rounds that are left, with their evaluations."""
        left, every = experiment.training.rounds - done, experiment.evaluation.every
        return self.setup + left * self.round + (left // every + 1) * self.evaluation


def kind(experiment: Experiment) -> str:
    """Equal for experiments whose rounds and evaluations cost the same."""
    flat = decisive_settings(experiment.model_dump()) | {"runtime.threads": experiment.runtime.threads}
    return hash_of({key: value for key, value in flat.items() if key not in _NO_MATTER})


@dataclass(frozen=True)
class Expected:
    """What some runs will take, one after the other."""

    seconds: float
    kinds: int
    """How many kinds of run were timed."""
    untimed: int
    """Runs whose kind could not be timed; they are not in the sum."""
    reasons: list[str]
    """Why, per kind: where in the grid it is and what went wrong."""


def expected(jobs: Sequence[Job]) -> Expected:
    """The sum over what is left of the runs, after one trial for every kind. ExperimentError for a run that cannot
    be; of whatever else goes wrong, the run itself will fail, and the others need not."""
    kinds = {kind(job.experiment): job for job in reversed(jobs)}
    prices: dict[str, Price] = {}
    reasons = []
    for name, job in kinds.items():
        where = ", ".join(job.point) or job.path.name
        try:
            prices[name] = trial(job.experiment)
        except ExperimentError as error:
            raise ExperimentError(f"{where}: {error}") from error
        except Exception as error:
            reason = str(error) if isinstance(error, FacadeError) else f"{type(error).__name__}: {error}"
            reasons.append(f"{where}: {reason}")
    priced = [(job, prices[kind(job.experiment)]) for job in jobs if kind(job.experiment) in prices]
    seconds = sum(price.of(job.experiment, job.done) for job, price in priced)
    return Expected(seconds, len(prices), len(jobs) - len(priced), reasons)


@one_intra_op_thread()  # as every runtime does
def trial(experiment: Experiment) -> Price:
    """Load the data, then time one round and one evaluation at the end of the run, where warm-ups are
    over, from untrained models and on a few test images."""
    began = time.perf_counter()
    setup = set_up(experiment)
    if time.perf_counter() - began < _BRIEF:  # the first time also imports libraries: time it again
        began = time.perf_counter()
        setup = set_up(experiment)
    shard = setup.shard(np.arange(setup.federation.n))
    federation, share = _with_few_tests(setup.federation)
    watch, rounds = setup.learner.stopwatch, experiment.training.rounds
    start = max(rounds - 2, 0), setup.algorithm.init(shard)
    started = loaded = time.perf_counter()
    taken = 0.0

    def exchange(post: Post) -> Inbox:
        nonlocal started, taken
        if post.round < rounds - 1:  # that round also warmed caches up: the next one is timed
            watch.lap()
            started = time.perf_counter()
        elif post.round == rounds - 1:
            taken = time.perf_counter() - started - watch.lap().get("evaluate", 0.0)
        return among_all(shard)(post)

    drive(play(setup.algorithm, shard, setup.plan, federation, start), exchange)
    return Price(loaded - began, taken, watch.lap()["evaluate"] / share)


def _with_few_tests(federation: Federation) -> tuple[Federation, float]:
    """The federation with shorter test sets, and the share of the test images that is left."""
    short = federation.tested_on(_FEW)
    sizes = [sum(len(f.tests[of]) for of in f.test_of) for f in (short, federation)]
    return short, sizes[0] / sizes[1]
