"""Nodes spread over a Ray cluster: one actor per shard, each playing the same rounds as the simulator.

The driver moves references and rows, never messages; it writes files, checkpoints and the summary as
the local runtime does. Ray trusts whoever can reach it: it belongs inside one organisation.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from facade.core.types import Ids
from facade.data.federation import Federation
from facade.errors import ExperimentError, FacadeError
from facade.experiment.config import Experiment
from facade.experiment.setup import Setup
from facade.learning.machine import cpu
from facade.runs.checkpoint import Checkpoint
from facade.runs.environment import versions
from facade.runs.result import Result
from facade.runs.state_files import PiecewiseTensor, PiecewiseTree
from facade.runs.stop_signals import StopSignals
from facade.runtimes.ray.connection import ClusterError, connected, ids, machines
from facade.runtimes.ray.worker import Move, Part, Worker, packed
from facade.runtimes.recorder import FinalState, Progress, Recorder, record

ATTEMPTS = 3
"""How often a run may be thrown back to the same checkpoint before it is given up."""
PIECE_BYTES = 1 << 25
"""States are fetched for a checkpoint in pieces of this size, whatever there is of them."""
SLICE = 1.0
"""Seconds between two looks around while this process waits for others."""
PATIENCE = 60
"""Slices after which it is said that workers find no room, and nobody waits for news of a loss any longer."""


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


def run(
    experiment: Experiment,
    out: str | Path | None = None,
    *,
    resume: bool = False,
    federation: Federation | None = None,
    progress: Progress | None = None,
    address: str | None = None,
) -> Result:
    """Run an experiment on the Ray cluster at `address`, or on one that is started on this machine for
    the time of the run; everything else is as in the local runtime."""
    with connected(address):
        return run_connected(experiment, out, resume=resume, federation=federation, progress=progress)


def run_connected(
    experiment: Experiment,
    out: str | Path | None = None,
    *,
    resume: bool = False,
    federation: Federation | None = None,
    progress: Progress | None = None,
    stop_signals: StopSignals | None = None,
    shards: int = 0,
    cpus: float = 0,
) -> Result:
    """The same where Ray is connected already. `shards`: over what the experiment says; `cpus`: for each
    of them, instead of an even share of the cluster."""
    return record(
        experiment,
        out,
        lambda setup: Cluster(setup, shards, cpus).compute,
        resume=resume,
        federation=federation,
        progress=progress,
        stop_signals=stop_signals,
    )


class Cluster:
    """A run on the cluster that this process is connected to."""

    def __init__(self, setup: Setup, shards: int = 0, cpus: float = 0) -> None:
        import ray

        self.setup = setup
        self._shards = shards
        self._cpus = cpus
        self.share()  # refuses more shards than nodes, before anything is written
        self._federation = ray.put(packed(setup.federation))

    def compute(self, recorder: Recorder) -> Result:
        """Play the run to its end, going back to the newest checkpoint when a worker is lost."""
        lost: LostError | None = None
        before, attempts = -1, 0
        while True:
            checkpoint = recorder.start()
            at = checkpoint.round if checkpoint else 0
            attempts = attempts + 1 if at == before else 1
            before = at
            if lost is not None and attempts > ATTEMPTS:
                raise ClusterError(
                    f"{lost}, again and again since round {at}; what was computed is kept:"
                    " mend the cluster and add --resume"
                ) from lost
            if lost is not None:
                warnings.warn(f"{lost}; going on from round {at} with what is left of the cluster", stacklevel=2)
            with self.workers() as workers:
                try:
                    return workers.play(recorder, checkpoint)
                except LostError as error:
                    lost = LostError(str(error))  # its frames would keep the states that were sent out
                    workers.account(recorder.heed)

    @contextlib.contextmanager
    def workers(self) -> Iterator[Workers]:
        """Workers for every shard, gone afterwards."""
        import ray

        share = self.share()
        actor = ray.remote(Worker).options(num_cpus=share.cpus, scheduling_strategy="SPREAD")
        workers = [actor.remote() for _ in range(share.shards)]
        try:
            yield Workers(self.setup, workers, self._federation, share)
        finally:
            for worker in workers:
                with contextlib.suppress(Exception):  # it may be gone, and Ray with it
                    ray.kill(worker)

    def share(self) -> Share:
        """Shards, and CPUs for each, as the cluster is now: one shard per machine unless told."""
        runtime, n = self.setup.experiment.runtime, self.setup.federation.n
        now = machines()
        cpus = [node["Resources"]["CPU"] for node in now]
        shards = self._shards or runtime.shards or min(len(cpus), n)
        if shards > n:
            raise ExperimentError(f"{shards} shards are more than the {n} nodes; ask for at most {n}")
        each = self._cpus or largest_share(cpus, shards)
        return Share(shards, each, runtime.threads or max(1, int(each)), ids(now))


def largest_share(machines: Sequence[float], shards: int) -> float:
    """The most CPUs that each shard can have so that all find room on the machines; whole ones if there
    are enough."""
    sizes = {cpus / count for cpus in machines for count in range(1, shards + 1)}
    share = max(size for size in sizes if sum(int(cpus / size + 1e-9) for cpus in machines) >= shards)
    return float(int(share)) if share >= 1 else int(share * 1000) / 1000


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
        moves = self.begin(checkpoint, recorder.heed)
        while True:
            recorder.add([row for move in moves for row in move.rows])
            if moves[0].wanted is None:
                break
            recorder.between_rounds(moves[0].round, lambda: self._piecewise("state"))
            moves = self.exchange(moves)
        digests = _get([worker.digests.remote() for worker in self._workers])
        models, states = ([digest for each in part for digest in each] for part in zip(*digests, strict=True))
        return recorder.finish(FinalState(self._piecewise("models"), models, states))

    def begin(self, checkpoint: Checkpoint | None, heed: Callable[[], None] = lambda: None) -> list[Move]:
        """Start every shard, from its part of the checkpoint if there is one. `heed` is called again and
        again while workers are waited for, and may raise."""
        self._assemble(heed)
        _warn_if_unlike(_get(self._ready))
        starts: list[tuple[int, Any]] = [(0, None)] * len(self._workers)
        if checkpoint is not None:
            starts = [(checkpoint.round, self._put(checkpoint, nodes)) for nodes in self._nodes]
        return self._timed(
            _get([worker.begin.remote(*start) for worker, start in zip(self._workers, starts, strict=True)])
        )

    def account(self, heed: Callable[[], None]) -> None:
        """After a loss: wait until Ray knows who is gone, or all answer; for so long it counts a lost machine
        among those that have room. Whoever is silent for long is at work, or never had a place."""
        import ray
        from ray.exceptions import ActorUnavailableError, RayError

        calls = {worker.__ray_ready__.remote(): worker for worker in self._workers}
        for _ in range(PATIENCE):
            if self._misses_a_machine():
                return
            time.sleep(SLICE)
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
            heed()

    def _assemble(self, heed: Callable[[], None]) -> None:
        """Wait until every worker is ready. One that was meant for a lost machine might never be."""
        import ray

        waiting = self._ready
        for slices in itertools.count(1):
            ready, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=SLICE)
            _get(ready)
            if not waiting:
                return
            heed()
            if self._misses_a_machine():
                raise LostError("a machine was lost before all workers had begun")
            if slices == PATIENCE:
                free = ray.available_resources().get("CPU", 0.0)
                warnings.warn(
                    f"{len(waiting)} of {len(self._workers)} shards have not begun after {PATIENCE * SLICE:g} s;"
                    f" the cluster has {free:g} CPUs free",
                    stacklevel=2,
                )

    def _misses_a_machine(self) -> bool:
        """Whether Ray knows that one is gone which this was planned for."""
        return bool(self._machines - ids(machines()))

    def exchange(self, moves: list[Move]) -> list[Move]:
        """One exchange: every worker hands out what others want, then fetches what is meant for it."""
        wanted = [move.wanted for move in moves if move.wanted is not None]
        workers = list(enumerate(self._workers))
        slices = _get([worker.hand_out.remote([of_one[shard] for of_one in wanted]) for shard, worker in workers])
        return self._timed(_get([worker.advance.remote([part[shard] for part in slices]) for shard, worker in workers]))

    def _timed(self, moves: list[Move]) -> list[Move]:
        """Count the phases of the slowest worker, which is what the run waits for."""
        slowest = max(moves, key=lambda move: sum(move.seconds.values()))
        self._setup.learner.stopwatch.add(slowest.seconds)
        return moves

    def _put(self, checkpoint: Checkpoint, nodes: Ids) -> dict[str, Any]:
        """References to the state of some nodes, a leaf at a time: this process never holds all of it."""
        import ray

        rows = torch.from_numpy(nodes)
        return {name: ray.put(leaf[rows].numpy()) for name, leaf in checkpoint.state.items()}

    def _piecewise(self, of: Part) -> PiecewiseTree:
        """The state or models of all nodes, which stay with the workers until they are asked for."""
        forms = _get(self._workers[0].leaves.remote(of))
        piecewise = {}
        for name, (dtype, shape) in forms.items():
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
    said = str(lost).strip().splitlines() or [""]
    raise LostError(f"a worker was lost ({type(lost).__name__}: {said[0]})") from lost
