"""Whole sites in one process: the same code as between real ones, over memory."""

import json

import numpy as np
import pytest

from facade import Experiment, Federation, run
from facade.algorithms import ALGORITHMS
from facade.core import tree
from facade.errors import FacadeError
from facade.export.model_card import OWN_SHARES
from facade.peers.after.export import export_site
from facade.peers.after.outcome import Outcome
from facade.peers.local_network import founded
from facade.peers.trust.membership import Change, changed
from facade.runs.rows import in_order
from facade.runs.run_directory import RunDirectory
from peers.makers import QUICK, SCHEMA, audited, federation, tiny
from peers.memory import opened, run_all

FOUR = ('data.clusters="3:1"', "topology.degree=2")


@pytest.mark.parametrize("loss", ["plain", "balanced"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_sites_in_memory_reach_the_state_of_the_simulator(algorithm, loss, tmp_path):
    labels = ("data.partition=dirichlet", f"training.loss={loss}")
    experiment = tiny(*FOUR, *labels, f"algorithm.name={algorithm}", "training.rounds=4", "evaluation.every=4")
    with founded(experiment, tmp_path, "patient", QUICK) as sites, opened(sites.homes) as nodes:
        outcomes = run_all(nodes)
    simulated = run(experiment)
    summary = simulated.summary
    assert tree.joint([outcome.state_sha256 for outcome in outcomes.values()]) == summary["state_sha256"]
    assert tree.joint([outcome.model_sha256 for outcome in outcomes.values()]) == summary["model_sha256"]
    assert rows_of(sites.homes) == list(simulated.rows)
    assert audited(sites.homes) == []


@pytest.mark.parametrize("loss", ["plain", "balanced"])
@pytest.mark.parametrize("heads", ["2", "auto"])
def test_sites_in_memory_survey_as_the_simulator_does(heads, loss, tmp_path):
    labels = ("data.partition=dirichlet", "data.alpha=1.0", f"training.loss={loss}")
    surveyed = ("algorithm.seeding=class-means", f"algorithm.heads={heads}", "algorithm.max_heads=3")
    experiment = tiny(*FOUR, *labels, *surveyed, "training.rounds=45", "evaluation.every=45", "training.steps=1")
    with founded(experiment, tmp_path, "patient", QUICK) as sites, opened(sites.homes) as nodes:
        outcomes = run_all(nodes)
    summary = run(experiment).summary
    assert tree.joint([outcome.state_sha256 for outcome in outcomes.values()]) == summary["state_sha256"]
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


def rows_of(homes):
    return in_order([row for home in homes for row in RunDirectory(home / "run").rows])


def test_sites_with_data_of_their_own_predict_with_their_own_label_shares_as_simulated(tmp_path):
    made = federation(tmp_path, experiment=("training.loss=balanced",))
    random = np.random.default_rng(1)
    everyone = []
    for number, id in enumerate("abc"):
        y = (np.arange(40) % (number + 2) == 0).astype(np.int64)
        x = np.clip(random.normal(100 + 40 * y[:, None, None], 60, (40, 8, 8)), 0, 255).astype(np.uint8)
        everyone.append((x[:24], y[:24], x[24:], y[24:]))
        arrays = zip(("x_train", "y_train", "x_test", "y_test"), everyone[-1], strict=True)
        np.savez(tmp_path / f"{id}.npz", **dict(arrays), classes=np.array(SCHEMA.classes))
        with (made.home(id) / "node.toml").open("a") as file:
            file.write(f'\n[data]\nsource = "npz"\nroot = "{tmp_path}"\npath = "{id}.npz"\n')
    homes = [made.home(id) for id in "abc"]
    with opened(homes) as nodes:
        run_all(nodes)
    experiment = Experiment.of(made.membership.experiment)
    rows = list(run(experiment, federation=Federation.from_nodes(everyone, classes=SCHEMA.classes)).rows)
    assert rows_of(homes) == rows
    assert any(row["confusion"] != row["flat_confusion"] for row in rows if row["kind"] == "final")
    export_site(homes[0], tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text()
    assert f"{OWN_SHARES} Accuracies below are of predictions with every node's own label shares added." in card
    final = json.loads((homes[0] / "run" / "site.json").read_text())["site"]["final"]
    assert final["flat_confusion"] == rows[-3]["flat_confusion"]


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
