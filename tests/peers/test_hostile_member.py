"""One hostile member among sites: the small version of benchmarks/hostile_member.py."""

import importlib
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("kind", ["sign-flip", "final-only"])
def test_one_hostile_member_of_eight_ruins_nothing_and_is_named(kind, hostile_member, tmp_path):
    few = ("training.steps=5",)
    case, clean = (hostile_member.Case(name, name, few) for name in (kind, "none"))
    experiment = hostile_member.experiment(case, 1, rounds=45)
    with founded(experiment, tmp_path, "brisk", QUICK) as sites, opened(sites.homes) as nodes:
        outcomes = run_all(nodes)
    assert [type(outcome) for outcome in outcomes.values()] == [Outcome] * 8, outcomes
    untroubled = hostile_member.simulated(hostile_member.experiment(clean, 1, rounds=45))
    run = hostile_member.told(sites.homes) | {"alone": untroubled}
    judged = hostile_member.judged(case, run, untroubled)
    assert (judged["within"], judged["named"], judged["innocent_first"]) == (True, True, False), judged


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
