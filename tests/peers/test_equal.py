import json

import pytest

from facade import run
from facade.algorithms import ALGORITHMS
from facade.peers import local_network
from peers.makers import QUICK, tiny


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_eight_peers_reach_the_state_and_rows_of_the_simulator(algorithm, tmp_path):
    experiment = tiny(f"algorithm.name={algorithm}")
    simulated = run(experiment)
    together = local_network.run(experiment, tmp_path / "net", limits=QUICK)
    assert together.summary["state_sha256"] == simulated.summary["state_sha256"]
    assert together.summary["model_sha256"] == simulated.summary["model_sha256"]
    assert list(together.rows) == list(simulated.rows)
    sites = sorted((tmp_path / "net" / "sites").glob("n*"))
    assert len(sites) == 8
    for site in sites:
        signed = json.loads((site / "run" / "site.json").read_text())
        assert signed["site"]["policy"] == "patient"
        ledger = signed["site"]["ledger"]
        assert all(entry["missed"] == entry["late"] == 0 and not entry["refused"] for entry in ledger.values())


def test_seeded_heads_travel_too(tmp_path):
    settings = ("algorithm.seeding=farthest", "algorithm.warmup=1", "training.rounds=15", "training.steps=1")
    experiment = tiny(*settings, "data.clusters=3:1", "topology.degree=2", "evaluation.every=15")
    together = local_network.run(experiment, tmp_path / "net", limits=QUICK)
    assert together.summary["state_sha256"] == run(experiment).summary["state_sha256"]
