"""Losing machines, and waiting for them, on a stand-in for Ray that is as slow to notice as Ray can be."""

import platform
import re
import signal
from dataclasses import dataclass

import pytest
import torch

from cluster.conftest import tiny
from facade.algorithms.el import EL
from facade.errors import StoppedError
from facade.runs.environment import versions
from facade.runs.stop_signals import StopSignals
from facade.runtimes.ray import cluster, sweep, workers
from facade.runtimes.ray.errors import ClusterError
from facade.runtimes.recorder import Quiet
from facade.sweep.jobs import Job
from facade.testing.contract import assert_same
from runs import At

LONG = ("training.rounds=12", "evaluation.every=3")


def test_a_lost_machine_is_not_planned_for_while_ray_has_not_missed_it(stand_in, simulated, tmp_path):
    experiment = tiny(*LONG)
    lose = At(7, lambda: stand_in.lose(stand_in.machines[1], missed_after=5))
    with pytest.warns(UserWarning, match="going on from round 6") as said:
        ended = cluster.run_connected(experiment, tmp_path / "run", progress=lose)
    assert [str(warning.message) for warning in said] == [
        "a worker was lost (ActorUnavailableError: it does not answer); going on from round 6 with what is left of"
        " the cluster"
    ]
    assert_same(ended, simulated(experiment))


def test_a_machine_that_is_missed_while_workers_find_no_room_is_planned_without(stand_in, simulated):
    stand_in.lose(stand_in.machines[2], missed_after=4)
    with pytest.warns(UserWarning, match="a machine was lost before all workers had begun; going on from round 0"):
        assert_same(cluster.run_connected(tiny()), simulated(tiny()))
    assert stand_in.moments == 4, "what Ray knows is not waited for"


def test_losses_without_end_are_given_up_with_a_sentence(stand_in, tmp_path):
    class Deadly(Quiet):
        def round(self, done, rounds):
            if done == 4:
                stand_in.actors[-1].die()

    with pytest.warns(UserWarning, match="from round 3") as said, pytest.raises(ClusterError) as given_up:
        cluster.run_connected(tiny(*LONG), tmp_path / "run", progress=Deadly())
    assert len(said) == cluster.ATTEMPTS
    assert str(given_up.value) == (
        "a worker was lost (ActorDiedError: it is gone), again and again since round 3; what was computed is kept:"
        " mend the cluster and add `resume=True`"
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_whoever_waits_for_room_can_be_stopped(stand_in, tmp_path, number):
    class Stop(Quiet):
        def start(self, experiment, done):
            signal.raise_signal(number)

    stand_in.machines[0].held = 1
    with pytest.raises(StoppedError, match="stopped after round 0 of 3; continue with") as stopped:
        cluster.run_connected(tiny(), tmp_path / "run", progress=Stop())
    assert stopped.value.exit_code == 128 + number


def test_whoever_waits_for_ray_to_miss_a_machine_can_be_stopped(stand_in, tmp_path):
    def lose():
        stand_in.lose(stand_in.machines[1], missed_after=10**6)
        stand_in.at[stand_in.moments + 3] = lambda: signal.raise_signal(signal.SIGTERM)

    with pytest.raises(StoppedError, match="stopped after round 6 of 12"):
        cluster.run_connected(tiny(*LONG), tmp_path / "run", progress=At(7, lose))


def test_a_cluster_that_others_use_is_waited_for_and_it_is_said(stand_in, simulated):
    busy = stand_in.machines[0]
    busy.held = 1
    stand_in.at[workers.MOST_POLLS + 5] = lambda: setattr(busy, "held", 0)
    with pytest.warns(UserWarning, match=r"1 of 3 shards have not begun .*; the cluster has 0 CPUs free"):
        assert_same(cluster.run_connected(tiny()), simulated(tiny()))


def test_a_cluster_without_cpus_is_refused_before_anything_is_written(stand_in, tmp_path):
    stand_in.machines = []
    with pytest.raises(ClusterError, match="no machine with CPUs; start one with: ray start"):
        cluster.run_connected(tiny(), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_sweep_on_a_cluster_says_where_an_algorithm_of_ones_own_failed(stand_in, tmp_path):
    experiment = tiny("algorithm.name=cluster.test_losses:Mistaken")
    jobs = [Job(experiment.with_(f"seed={seed}"), tmp_path / f"{seed}", ()) for seed in (1, 2)]
    ended = list(sweep.compute_all(jobs, 2, lambda job, event: None, StopSignals()))
    for end in ended:
        noted = tmp_path / f"{end.job.path.name}-failure.txt"
        assert (end.ended, end.reason) == ("failed", f"KeyError: 'weights'; {noted} says where")
        assert "RayTaskError" in noted.read_text()
    assert len(ended) == len(jobs)


@dataclass(frozen=True)
class Mistaken(EL):
    """Has a mistake."""

    def local(self, turn, state):
        return {}["weights"]


def test_a_machine_with_other_versions_is_refused_by_name(stand_in, monkeypatch):
    monkeypatch.setattr(workers, "versions", lambda: versions() | {"torch": "9.9", "python": "3.99.1"})
    said = (
        f"machine {platform.node()} of the cluster has other versions: torch = {torch.__version__} there and 9.9 here;"
    )
    with pytest.raises(ClusterError, match=re.escape(said)):
        cluster.run_connected(tiny())


def test_machines_with_other_processors_are_warned_of(stand_in, simulated, monkeypatch):
    monkeypatch.setattr(workers, "cpu", lambda: "Difference Engine")
    with pytest.warns(UserWarning, match=r"different processors \(.*Difference Engine.*\): its results need not be"):
        found = cluster.run_connected(tiny())
    assert_same(found, simulated(tiny()))
