"""The workers of a run on Ray, as its driver sees them: it moves references and rows, never messages."""

from __future__ import annotations

import functools
import itertools
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from facade.core.types import Ids
from facade.errors import FacadeError
from facade.experiment.setup import Setup
from facade.learning.machine import cpu
from facade.runs.checkpoint import Checkpoint
from facade.runs.environment import versions
from facade.runs.result import Result
from facade.runs.state_files import PiecewiseTensor, PiecewiseTree
from facade.runtimes.ray.connection import ids, machines
from facade.runtimes.ray.worker import Part, RoundReport
from facade.runtimes.recorder import FinalState, Recorder

PIECE_BYTES = 1 << 25
"""States are fetched for a checkpoint in pieces of this size, whatever there is of them."""
POLL_SECONDS = 1.0
"""Between two looks at others for whom this process waits."""
MOST_POLLS = 60
"""Looks after which it is said that workers find no room, and nobody waits for news of a loss any longer."""


class LostError(FacadeError):
    """A worker or a machine is gone; what the rest computed in this round is of no use."""


class Share(NamedTuple):
    """How a run uses the cluster."""

    shards: int
    cpus: float
    """Reserved for each shard."""
    threads: int
    machines: frozenset[str]
    """Ids of those that this was planned for."""


class Workers:
    """The workers of one attempt."""

    def __init__(self, setup: Setup, workers: Sequence[Any], federation: Any, share: Share) -> None:
        """`federation`: a reference to the packed data."""
        self._setup = setup
        self._workers = workers
        self._machines = share.machines
        self._nodes = setup.divided(len(workers))
        settings = [f"runtime.shards={len(workers)}", f"runtime.threads={share.threads}"]
        described = setup.experiment.with_(*settings).model_dump()
        paths = [path or os.getcwd() for path in sys.path]
        self._ready = [
            worker.prepare.remote(described, federation, i, paths, versions()) for i, worker in enumerate(workers)
        ]

    def play(self, recorder: Recorder, checkpoint: Checkpoint | None) -> Result:
        """All rounds, and the end."""
        reports = self.begin(checkpoint, recorder.raise_if_stopped)
        while True:
            recorder.add([row for report in reports for row in report.rows])
            if reports[0].wanted is None:
                break
            recorder.between_rounds(reports[0].round, lambda: self._piecewise("state"))
            reports = self.exchange(reports)
        digests = _get([worker.digests.remote() for worker in self._workers])
        models, states = ([digest for each in part for digest in each] for part in zip(*digests, strict=True))
        return recorder.finish(FinalState(self._piecewise("models"), models, states))

    def begin(self, checkpoint: Checkpoint | None, between: Callable[[], None] = lambda: None) -> list[RoundReport]:
        """Start every shard, from its part of the checkpoint if there is one. `between` is called again and
        again while workers are waited for, and may raise."""
        self._wait_until_ready(between)
        _warn_if_unlike(_get(self._ready))
        starts: list[tuple[int, Any]] = [(0, None)] * len(self._workers)
        if checkpoint is not None:
            starts = [(checkpoint.round, self._put(checkpoint, nodes)) for nodes in self._nodes]
        return self._timed(
            _get([worker.begin.remote(*start) for worker, start in zip(self._workers, starts, strict=True)])
        )

    def wait_for_news_of_a_loss(self, between: Callable[[], None]) -> None:
        """After a loss: wait until Ray knows who is gone, or all answer; for so long it counts a lost machine
        among those that have room. Whoever is silent for long is at work, or never had a place."""
        import ray
        from ray.exceptions import ActorUnavailableError, RayError

        calls = {worker.__ray_ready__.remote(): worker for worker in self._workers}
        for _ in range(MOST_POLLS):
            if self._misses_a_machine():
                return
            time.sleep(POLL_SECONDS)
            answered, _silent = ray.wait(list(calls), num_returns=len(calls), timeout=0)
            for call in answered:
                worker = calls.pop(call)
                try:
                    ray.get(call)
                except ActorUnavailableError:
                    calls[worker.__ray_ready__.remote()] = worker
                except RayError:
                    return
            if not calls:
                return
            between()

    def _wait_until_ready(self, between: Callable[[], None]) -> None:
        """Wait until every worker is ready. One that was meant for a lost machine might never be."""
        import ray

        waiting = self._ready
        for polls in itertools.count(1):
            ready, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=POLL_SECONDS)
            _get(ready)
            if not waiting:
                return
            between()
            if self._misses_a_machine():
                raise LostError("a machine was lost before all workers had begun")
            if polls == MOST_POLLS:
                free = ray.available_resources().get("CPU", 0.0)
                warnings.warn(
                    f"{len(waiting)} of {len(self._workers)} shards have not begun after"
                    f" {MOST_POLLS * POLL_SECONDS:g} s; the cluster has {free:g} CPUs free",
                    stacklevel=2,
                )

    def _misses_a_machine(self) -> bool:
        """Whether Ray knows that one is gone which this was planned for."""
        return bool(self._machines - ids(machines()))

    def exchange(self, reports: list[RoundReport]) -> list[RoundReport]:
        """One exchange: every worker hands out what others want, then fetches what is meant for it."""
        wanted = [report.wanted for report in reports if report.wanted is not None]
        workers = list(enumerate(self._workers))
        slices = _get([worker.hand_out.remote([of_one[shard] for of_one in wanted]) for shard, worker in workers])
        return self._timed(_get([worker.advance.remote([part[shard] for part in slices]) for shard, worker in workers]))

    def _timed(self, reports: list[RoundReport]) -> list[RoundReport]:
        """Count the phases of the slowest worker, which is what the run waits for."""
        slowest = max(reports, key=lambda report: sum(report.seconds.values()))
        self._setup.learner.stopwatch.add(slowest.seconds)
        return reports

    def _put(self, checkpoint: Checkpoint, nodes: Ids) -> dict[str, Any]:
        """References to the state of some nodes, a leaf at a time: this process never holds all of it."""
        import ray

        rows = torch.from_numpy(nodes)
        return {name: ray.put(leaf[rows].numpy()) for name, leaf in checkpoint.state.items()}

    def _piecewise(self, of: Part) -> PiecewiseTree:
        """The state or models of all nodes, which stay with the workers until they are asked for."""
        leaves = _get(self._workers[0].leaves.remote(of))
        piecewise = {}
        for name, (dtype, shape) in leaves.items():
            full = (self._setup.federation.n, *shape[1:])
            kind = getattr(torch, dtype.removeprefix("torch."))
            piecewise[name] = PiecewiseTensor(kind, full, functools.partial(self._pieces, of, name, kind, full))
        return piecewise

    def _pieces(self, of: Part, name: str, dtype: torch.dtype, shape: tuple[int, ...]) -> Iterator[torch.Tensor]:
        row = max(1, dtype.itemsize * int(torch.Size(shape[1:]).numel()))
        step = max(1, PIECE_BYTES // row)
        for worker, nodes in zip(self._workers, self._nodes, strict=True):
            for first in range(0, len(nodes), step):
                yield torch.tensor(_get(worker.piece.remote(of, name, slice(first, first + step))))


def _warn_if_unlike(processors: Sequence[str]) -> None:
    kinds = sorted({cpu(), *processors})
    if len(kinds) > 1:
        warnings.warn(
            f"the machines of this run have different processors ({'; '.join(kinds)}): its results need not be those of"
            " one machine to the bit",
            stacklevel=2,
        )


def _get(refs: Any) -> Any:
    """Ray's answers; LostError where somebody is gone, and errors of ours as they were raised: of several,
    that of the first shard, whoever was quicker."""
    import ray
    from ray.exceptions import RayError, RayTaskError

    try:
        return [ray.get(ref) for ref in refs] if isinstance(refs, list) else ray.get(refs)
    except RayTaskError as error:
        if isinstance(error.cause, FacadeError):
            raise error.cause from None
        if not isinstance(error.cause, RayError):
            raise
        lost: BaseException = error.cause
    except RayError as error:
        lost = error
    lines = str(lost).strip().splitlines() or [""]
    raise LostError(f"a worker was lost ({type(lost).__name__}: {lines[0]})") from lost
