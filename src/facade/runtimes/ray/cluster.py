"""Nodes spread over a Ray cluster: one actor per shard, each playing the same rounds as the simulator.

This process, the driver, writes files, checkpoints and the summary as the local runtime does. Ray trusts whoever can
reach it: it belongs inside one organisation.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Unpack

from facade.errors import ExperimentError
from facade.experiment.config import Experiment
from facade.experiment.setup import Setup
from facade.runs.result import Result
from facade.runtimes.ray.connection import connected, ids, machines
from facade.runtimes.ray.errors import ClusterError
from facade.runtimes.ray.worker import Worker, packed
from facade.runtimes.ray.workers import LostError, Share, Workers
from facade.runtimes.recorder import Recorder, RunOptions, record

ATTEMPTS = 3
"""How often a run may be thrown back to the same checkpoint before it is given up."""


def run(
    experiment: Experiment, out: str | Path | None = None, *, address: str | None = None, **options: Unpack[RunOptions]
) -> Result:
    """Run an experiment on the Ray cluster at `address`, or on one that is started on this machine for
    the time of the run; everything else is as in the local runtime."""
    with connected(address):
        return run_connected(experiment, out, **options)


def run_connected(
    experiment: Experiment,
    out: str | Path | None = None,
    *,
    shards: int = 0,
    cpus: float = 0,
    **options: Unpack[RunOptions],
) -> Result:
    """The same where Ray is connected already. `shards`: over what the experiment says; `cpus`: for each
    of them, instead of an even share of the cluster."""
    return record(experiment, out, lambda setup: Cluster(setup, shards, cpus).compute, **options)


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
                    " mend the cluster and add `resume=True`"
                ) from lost
            if lost is not None:
                warnings.warn(f"{lost}; going on from round {at} with what is left of the cluster", stacklevel=2)
            with self.workers() as workers:
                try:
                    return workers.play(recorder, checkpoint)
                except LostError as error:
                    lost = LostError(str(error))  # its frames would keep the states that were sent out
                    workers.wait_for_news_of_a_loss(recorder.raise_if_stopped)

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
