"""Whole sites in one process: the same code as between real ones, over memory."""

import pytest

from facade import run
from facade.algorithms import ALGORITHMS
from facade.core import tree
from facade.errors import FacadeError
from facade.peers.after.outcome import Outcome
from facade.peers.local_network import founded
from facade.peers.trust.membership import Change, changed
from peers.makers import QUICK, audited, tiny
from peers.memory import opened, run_all

FOUR = ('data.clusters="3:1"', "topology.degree=2")


@pytest.mark.parametrize("loss", ["plain", "balanced"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_sites_in_memory_reach_the_state_of_the_simulator(algorithm, loss, tmp_path):
    labels = ("data.partition=dirichlet", f"training.loss={loss}")
    experiment = tiny(*FOUR, *labels, f"algorithm.name={algorithm}", "training.rounds=4", "evaluation.every=4")
    with founded(experiment, tmp_path, "patient", QUICK) as sites, opened(sites.homes) as nodes:
        outcomes = run_all(nodes)
    summary = run(experiment).summary
    assert tree.joint([outcome.state_sha256 for outcome in outcomes.values()]) == summary["state_sha256"]
    assert tree.joint([outcome.model_sha256 for outcome in outcomes.values()]) == summary["model_sha256"]
    assert audited(sites.homes) == []


@pytest.mark.parametrize("algorithm", ["el", "dac", "facade"])
def test_sites_in_memory_keep_local_parts_as_the_simulator_does(algorithm, tmp_path):
    local = ('model.local=["core.1.bias"]', "training.rounds=4", "evaluation.every=4")
    experiment = tiny(*FOUR, *local, f"algorithm.name={algorithm}")
    with founded(experiment, tmp_path, "patient", QUICK) as sites, opened(sites.homes) as nodes:
        outcomes = run_all(nodes)
    summary = run(experiment).summary
    assert tree.joint([outcome.state_sha256 for outcome in outcomes.values()]) == summary["state_sha256"]
    assert audited(sites.homes) == []


def test_a_leaf_of_a_star_learns_that_it_was_removed(tmp_path):
    rounds = ("training.rounds=12", "evaluation.every=12", "training.steps=1")
    experiment = tiny('data.clusters="4"', "data.skew=none", "topology.name=star", "algorithm.name=dpsgd", *rounds)
    with founded(experiment, tmp_path, "patient", QUICK) as sites, opened(sites.homes) as nodes:
        first = nodes["n0"].followed_lists.membership
        three = first.model_copy(
            update={"experiment": first.experiment | {"data": first.experiment["data"] | {"clusters": "3"}}}
        )
        second = changed(three, Change(remove=["n3"]), 4).sign([tmp_path / "admin.key"])
        for home in sites.homes[:3]:
            (home / "membership.json").write_text(second)
        ends = run_all(nodes)
    assert isinstance(ends["n3"], FacadeError)
    assert "no neighbour admits this site in round" in str(ends["n3"])
    assert [type(ends[id]) for id in ("n0", "n1", "n2")] == [Outcome] * 3
