"""Nodes spread over a Ray cluster: one actor per shard, each playing the same rounds as the simulator.

The driver moves references and rows, never messages; it writes files, checkpoints and the summary as
the local runtime does. Ray trusts whoever can reach it: it belongs inside one organisation.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from facade.bell import Bell
from facade.checkpoint import Checkpoint
from facade.config import Experiment
from facade.data.federation import Federation, Ids
from facade.errors import ExperimentError, FacadeError
from facade.result import Result
from facade.runtimes.ray_connection import ClusterError, connected, machines
from facade.runtimes.ray_worker import Move, Part, Worker, packed
from facade.runtimes.recorder import Final, Progress, Recorder, record
from facade.setup import Setup
from facade.stacks import Leaf, Stack

ATTEMPTS = 3
"""How often a run may be thrown back to the same checkpoint before it is given up."""
PIECE_BYTES = 1 << 25
"""States are fetched for a checkpoint in pieces of this size, whatever there is of them."""


class LostError(FacadeError):
    """A worker or a machine is gone; what the rest computed in this round is of no use."""


class Share(NamedTuple):
    """How a run uses the cluster."""

    shards: int
    cpus: float
    """Reserved for each shard."""
    threads: int


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
    bell: Bell | None = None,
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
        bell=bell,
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
            try:
                with self.troupe() as troupe:
                    return troupe.play(recorder, checkpoint)
            except LostError as error:
                lost = error

    @contextlib.contextmanager
    def troupe(self) -> Iterator[Troupe]:
        """Workers for every shard, gone afterwards."""
        import ray

        share = self.share()
        actor = ray.remote(Worker).options(num_cpus=share.cpus, scheduling_strategy="SPREAD")
        workers = [actor.remote() for _ in range(share.shards)]
        try:
            yield Troupe(self.setup, workers, self._federation, share.threads)
        finally:
            for worker in workers:
                with contextlib.suppress(Exception):  # it may be gone, and Ray with it
                    ray.kill(worker)

    def share(self) -> Share:
        """Shards, and CPUs for each, as the cluster is now: one shard per machine unless told."""
        runtime, n = self.setup.experiment.runtime, self.setup.federation.n
        cpus = [node["Resources"]["CPU"] for node in machines()]
        shards = self._shards or runtime.shards or min(len(cpus), n)
        if shards > n:
            raise ExperimentError(f"{shards} shards are more than the {n} nodes; ask for at most {n}")
        each = self._cpus or largest_share(cpus, shards)
        return Share(shards, each, runtime.threads or max(1, int(each)))


def largest_share(machines: Sequence[float], shards: int) -> float:
    """The most CPUs that each shard can have so that all find room on the machines; whole ones if there
    are enough."""
    sizes = {cpus / count for cpus in machines for count in range(1, shards + 1)}
    share = max(size for size in sizes if sum(int(cpus / size + 1e-9) for cpus in machines) >= shards)
    return float(int(share)) if share >= 1 else int(share * 1000) / 1000


class Troupe:
    """The workers of one attempt."""

    def __init__(self, setup: Setup, workers: Sequence[Any], federation: Any, threads: int) -> None:
        """`federation`: a reference to the packed data; `threads` of each worker."""
        self._setup = setup
        self._workers = workers
        self._nodes = setup.divided(len(workers))
        settings = [f"runtime.shards={len(workers)}", f"runtime.threads={threads}"]
        described = setup.experiment.with_(*settings).model_dump()
        paths = [path or os.getcwd() for path in sys.path]
        self._ready = [worker.prepare.remote(described, federation, i, paths) for i, worker in enumerate(workers)]

    def play(self, recorder: Recorder, checkpoint: Checkpoint | None) -> Result:
        """All rounds, and the end."""
        moves = self.begin(checkpoint)
        while True:
            recorder.add([row for move in moves for row in move.rows])
            if moves[0].wanted is None:
                break
            recorder.between_rounds(moves[0].round, lambda: self._stack("state"))
            moves = self.exchange(moves)
        digests = _get([worker.digests.remote() for worker in self._workers])
        models, states = ([digest for each in part for digest in each] for part in zip(*digests, strict=True))
        return recorder.finish(Final(self._stack("models"), models, states))

    def begin(self, checkpoint: Checkpoint | None) -> list[Move]:
        """Start every shard, from its part of the checkpoint if there is one."""
        _wait_for_room(self._ready)
        _get(self._ready)
        starts: list[tuple[int, Any]] = [(0, None)] * len(self._workers)
        if checkpoint is not None:
            starts = [(checkpoint.round, self._put(checkpoint, nodes)) for nodes in self._nodes]
        return self._timed(
            _get([worker.begin.remote(*start) for worker, start in zip(self._workers, starts, strict=True)])
        )

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

    def _stack(self, of: Part) -> Stack:
        """The state or models of all nodes, which stay with the workers until they are asked for."""
        forms = _get(self._workers[0].leaves.remote(of))
        stack = {}
        for name, (dtype, shape) in forms.items():
            full = (self._setup.federation.n, *shape[1:])
            kind = getattr(torch, dtype.removeprefix("torch."))
            stack[name] = Leaf(kind, full, functools.partial(self._pieces, of, name, kind, full))
        return stack

    def _pieces(self, of: Part, name: str, dtype: torch.dtype, shape: tuple[int, ...]) -> Iterator[torch.Tensor]:
        row = max(1, dtype.itemsize * int(torch.Size(shape[1:]).numel()))
        step = max(1, PIECE_BYTES // row)
        for worker, nodes in zip(self._workers, self._nodes, strict=True):
            for first in range(0, len(nodes), step):
                yield torch.tensor(_get(worker.piece.remote(of, name, slice(first, first + step))))


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


def _wait_for_room(calls: list[Any]) -> None:
    """Say so when the cluster takes long to start the workers: others may hold its CPUs."""
    import ray

    _, waiting = ray.wait(calls, num_returns=len(calls), timeout=60)
    if waiting:
        free = ray.available_resources().get("CPU", 0.0)
        warnings.warn(
            f"{len(waiting)} of {len(calls)} shards have not begun after 60 s; the cluster has {free:g} CPUs free",
            stacklevel=2,
        )
