import json

import pytest

from facade import run
from facade.algorithms import ALGORITHMS
from facade.peers import local_network
from facade.runtimes.recorder import Quiet
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


@pytest.mark.parametrize("model", ["mlp", "cnn-bn"])
def test_sites_find_out_over_tls_which_of_them_look_alike(model, tmp_path):
    settings = ("algorithm.seeding=class-means", "algorithm.warmup=0", "training.rounds=42", "training.steps=1")
    four = ("data.clusters=3:1", "topology.degree=2", "evaluation.every=42")
    experiment = tiny(*settings, *four, f"model.name={model}")
    together = local_network.run(experiment, tmp_path / "net", limits=QUICK)
    simulated = run(experiment)
    assert together.summary["state_sha256"] == simulated.summary["state_sha256"]
    assert together.summary["survey"] == simulated.summary["survey"]
    assert simulated.summary["survey"]["found"] == 2


class Watching(Quiet):
    """Keeps what it is told of evaluations."""

    def __init__(self):
        self.evaluations = []

    def evaluated(self, done, judged, final):
        self.evaluations.append((done, judged, final))


def test_a_network_shows_what_the_simulator_shows_heads_included(tmp_path):
    experiment = tiny('data.clusters="2:1"', "topology.degree=2", "training.rounds=4", "evaluation.every=2")
    simulator, network = Watching(), Watching()
    run(experiment, progress=simulator)
    local_network.run(experiment, tmp_path / "net", limits=QUICK, progress=network)
    assert network.evaluations == simulator.evaluations
    assert [(done, final) for done, _, final in network.evaluations] == [(2, False), (4, False), (4, True)]
    assert all({"dead_heads", "alike_heads"} <= judged.keys() for _, judged, final in network.evaluations if not final)
