"""One hostile member among sites: the small version of benchmarks/hostile_member.py."""

import importlib
from pathlib import Path

import numpy as np
import pytest

from facade import run
from facade.analysis import metrics
from facade.peers.after.outcome import Outcome
from facade.peers.local_network import founded
from peers.makers import QUICK, tiny
from peers.memory import opened, run_all
from peers.test_guarded import EL, attack
from peers.test_in_memory import FOUR


@pytest.fixture
def hostile_member(monkeypatch):
    """The benchmark's module."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    return importlib.import_module("hostile_member")


def simulated(experiment):
    """What a run without attackers comes to, as the benchmark keeps it."""
    rows = [row for row in run(experiment).rows if row["kind"] == "final"]
    accuracy = metrics.accuracy(np.array([row["confusion"] for row in rows])).tolist()
    return {"accuracy": {f"n{i}": value for i, value in enumerate(accuracy)}}


@pytest.mark.parametrize("kind", ["sign-flip", "final-only"])
def test_one_hostile_member_of_eight_ruins_nothing_and_is_named(kind, hostile_member, tmp_path):
    few = ("training.steps=5",)
    experiment = hostile_member.experiment(1, kind, few, rounds=45)
    with founded(experiment, tmp_path, "brisk", QUICK) as sites, opened(sites.homes) as nodes:
        outcomes = run_all(nodes)
    assert [type(outcome) for outcome in outcomes.values()] == [Outcome] * 8, outcomes
    told = hostile_member.told(sites.homes) | {"ended": "", "alone": hostile_member.alone(1, few, 45)}
    judged = hostile_member.judged(told, simulated(hostile_member.experiment(1, "none", few, rounds=45)))
    assert judged["majority_lost"] <= 0.02, judged
    assert judged["minority_lost"] <= 0.04, judged
    assert (judged["first_in_report"], judged["first_in_audit"], judged["innocent_first"]) == (True, True, False)


@pytest.mark.parametrize("rule", ["none", "fair"])
def test_a_member_with_negative_variances_is_turned_away_and_ends_nobody(rule, hostile_member, tmp_path):
    averaged = ("model.name=cnn-bn", "model.local=[]", f"guard.rule={rule}", "training.steps=1")
    settings = (*FOUR, *EL, *averaged, *attack("hostile_member:NegativeVariances"))
    with founded(tiny(*settings), tmp_path, "patient", QUICK) as sites, opened(sites.homes) as nodes:
        outcomes = run_all(nodes)
    assert [type(outcome) for outcome in outcomes.values()] == [Outcome] * 4, outcomes
    refused = {id: outcomes[id].ledger["n1"]["refused"] for id in ("n0", "n2", "n3")}
    assert all(reasons["negative-variance"] > 1 for reasons in refused.values())
    assert all(not entry["refused"] for id, entry in outcomes["n0"].ledger.items() if id != "n1")
    told = hostile_member.told(sites.homes)
    assert (told["suspects"], told["audit_suspects"]) == (["n1"], ["n1"])
