"""Whole sites in one process: the same code as between real ones, over memory."""

import pytest

from facade import run
from facade.algorithms import ALGORITHMS
from facade.core import tree
from facade.peers.local_network import founded
from peers.makers import QUICK, audited, tiny
from peers.memory import opened, run_all

FOUR = ('data.clusters="3:1"', "topology.degree=2")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_sites_in_memory_reach_the_state_of_the_simulator(algorithm, tmp_path):
    experiment = tiny(*FOUR, f"algorithm.name={algorithm}", "training.rounds=4", "evaluation.every=4")
    with founded(experiment, tmp_path, "patient", QUICK) as sites, opened(sites.homes) as nodes:
        outcomes = run_all(nodes)
    summary = run(experiment).summary
    assert tree.joint([outcome.state_sha256 for outcome in outcomes.values()]) == summary["state_sha256"]
    assert tree.joint([outcome.model_sha256 for outcome in outcomes.values()]) == summary["model_sha256"]
    assert audited(sites.homes) == []
