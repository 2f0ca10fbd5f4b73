"""A Ray cluster for the tests of one process, and tiny runs on it."""

import sys

import pytest

from cluster.stand_in import EXCEPTIONS, StandIn
from experiments import digits
from facade import run
from facade.runtimes.ray import connection
from facade.runtimes.ray import workers as driver
from facade.runtimes.ray.worker import Worker, packed
from facade.runtimes.ray.workers import Share, Workers
from facade.runtimes.recorder import record


def tiny(*settings):
    """Seven nodes, three rounds, a network with losses."""
    trouble = ("network.loss=0.2", "network.offline=0.1")
    return digits(*trouble, *settings, clusters="5:2", degree=2, rounds=3, steps=2, every=2)


@pytest.fixture(scope="session")
def ray():
    """Ray, connected to a cluster on this machine."""
    with connection.connected():
        import ray

        yield ray


@pytest.fixture(scope="session")
def workers(ray):
    """Five actors that take over shards of one run after the other; starting one takes seconds."""
    actor = ray.remote(Worker).options(num_cpus=0)
    return [actor.remote() for _ in range(5)]


@pytest.fixture
def run_on(ray, workers):
    """Run an experiment on so many of the workers."""

    def call(experiment, shards, out=None, **options):
        def play(setup):
            share = Share(shards, cpus=0, threads=1, machines=frozenset())
            some = Workers(setup, workers[:shards], ray.put(packed(setup.federation)), share)
            return lambda recorder: some.play(recorder, recorder.start())

        return record(experiment, out, play, **options)

    return call


@pytest.fixture
def stand_in(monkeypatch):
    """A stand-in for Ray with three machines of one CPU each, and no cluster."""
    ray = StandIn(1, 1, 1)
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setitem(sys.modules, "ray.exceptions", EXCEPTIONS)
    monkeypatch.setattr(driver, "POLL_SECONDS", 0)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return ray


@pytest.fixture(scope="session")
def simulated():
    """The same runs in the simulator, each once."""
    known = {}

    def call(experiment):
        if experiment.hash not in known:
            known[experiment.hash] = run(experiment)
        return known[experiment.hash]

    return call
