"""A guarded algorithm keeps the contract of every algorithm."""

import pytest
import torch

from facade.algorithms import ALGORITHMS
from facade.guards import GUARDS
from facade.testing import contract as checks
from facade.testing import driven as driving
from facade.testing.contract import assert_same, tiny

BRIEF = ("data.clusters=4:2", "training.rounds=3", "evaluation.every=3")
FAIR = "guard.rule=fair"
every_check = pytest.mark.parametrize("check", checks.CHECKS, ids=lambda check: check.__name__)
to_the_bit = pytest.mark.parametrize(
    "check", [checks.check_shard_invariant, checks.check_resumable, checks.check_pure], ids=lambda check: check.__name__
)


@every_check
@pytest.mark.parametrize("name", ["el", "facade"])
@pytest.mark.parametrize("rule", GUARDS)
def test_every_rule_keeps_the_contract(rule, name, check):
    """That nodes agree after the final exchange is no part of it: each judges by its own model and samples."""
    check(tiny(name, f"guard.rule={rule}", *BRIEF))


@to_the_bit
@pytest.mark.parametrize("name", ["dac", "deprl", "dpsgd", "ifca"])
def test_other_algorithms_keep_the_contract_behind_the_recommended_guard(name, check):
    check(tiny(name, FAIR, *BRIEF))


@pytest.mark.parametrize("model", [("model.name=cnn",), ("runtime.executor=looped",), ("runtime.dtype=float64",)])
@pytest.mark.parametrize("name", ["el", "facade"])
def test_how_nodes_are_split_over_shards_changes_no_bit_with_other_models_and_types(name, model):
    checks.check_shard_invariant(tiny(name, FAIR, *model, *BRIEF))


def test_nodes_that_hear_many_and_not_equally_many_are_judged_alike_in_all_shards():
    many = ("topology.name=erdos-renyi", "topology.degree=20", "network.loss=0.2", "data.clusters=30:6")
    short = ("training.rounds=2", "evaluation.every=2")
    whole, parts = (
        driving.result_of(tiny("facade", FAIR, *many, *short, f"runtime.shards={count}")) for count in (1, 9)
    )
    assert_same(whole, parts)


@to_the_bit
def test_a_model_whose_statistics_stay_at_their_node_keeps_the_contract(check):
    check(tiny("facade", FAIR, "model.name=contract.own:Normed", *BRIEF))


@pytest.mark.parametrize("name", ["el", "facade"])
def test_stacked_and_looped_agree(name):
    checks.check_executors_agree(tiny(name, FAIR, "training.rounds=6", "evaluation.every=6"))


@pytest.mark.parametrize(
    "check",
    [checks.check_shard_invariant, checks.check_thread_independent, checks.check_message_schema],
    ids=lambda check: check.__name__,
)
def test_a_guarded_survey_keeps_the_contract(check):
    surveyed = ("algorithm.seeding=class-means", "algorithm.heads=auto", "algorithm.max_heads=3", "data.clusters=4:2")
    check(tiny("facade", FAIR, *surveyed, "training.rounds=40", "evaluation.every=40"))


@pytest.mark.parametrize("block", [1, 2, 5])
def test_how_many_nodes_are_judged_at_a_time_changes_no_bit(block, monkeypatch):
    experiment = tiny("facade", FAIR, "data.clusters=5:3", "training.rounds=3", "evaluation.every=3")
    whole = driving.result_of(experiment)
    size = sum(leaf[0].numel() for leaf in driving.result_of(experiment).models.values())
    monkeypatch.setattr("facade.guards.guarded._BLOCK_VALUES", block * 5 * size + 5)
    assert_same(driving.result_of(experiment), whole)


@pytest.mark.parametrize("settings", [(), ("network.loss=0.3", "network.offline=0.2"), ("topology.name=complete",)])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_rule_that_uses_everything_changes_no_bit_of_models(name, settings):
    """But that D-PSGD, where everybody is heard, divides a sum instead of adding weighted messages."""
    if name == "dpsgd":
        settings = ("algorithm.all_reduce=false", *(s for s in settings if s != "topology.name=complete"))
    experiment = tiny(name, *BRIEF, *settings)
    plain, guarded = (driving.result_of(experiment.with_(f"guard.rule={r}")) for r in ("none", "guards.own:Everything"))
    assert guarded.summary["model_sha256"] == plain.summary["model_sha256"]
    noted = {"dropped", "dropped_part", "gate_closed"}
    assert [{k: v for k, v in row.items() if k not in noted} for row in guarded.rows] == list(plain.rows)


def test_a_rule_that_uses_everything_changes_no_bit_of_a_survey():
    experiment = tiny("facade", "algorithm.seeding=class-means", "training.rounds=40", "evaluation.every=40")
    with pytest.warns(UserWarning, match="heads = 'auto'"):
        guarded = driving.result_of(experiment.with_("guard.rule=guards.own:Everything"))
    assert guarded.summary["model_sha256"] == driving.result_of(experiment).summary["model_sha256"]


@pytest.mark.parametrize("name", ["el", "deprl", "facade"])
def test_a_rule_that_drops_everything_keeps_what_a_node_has(name):
    setup = driving.prepared(tiny(name, "guard.rule=guards.own:Nothing", *BRIEF))
    algorithm = setup.algorithm
    state = algorithm.init(driving.one_turn(setup, 0).shard)
    for round in range(3):
        turn = driving.one_turn(setup, round)
        trained = algorithm.local(turn, state)
        heard = driving.inbox_of(turn.shard, algorithm.message(turn, trained), algorithm.wanted(turn, trained))
        state = algorithm.mix(turn, trained, heard)
        assert checks.distance(algorithm.model(state), algorithm.model(trained)) < 1e-6, "a mean of equal numbers"
        assert (state.dropped[:, 0] >= 0).all()


def test_a_guard_learns():
    long = ("training.rounds=25", "training.steps=5", "training.batch=8", "algorithm.warmup=3", "evaluation.every=25")
    for rule in ("fair", "balance", "own-data", "clip"):
        checks.check_learns(tiny("facade", f"guard.rule={rule}", *long))


def test_equal_messages_are_never_dropped_nor_changed():
    for rule in GUARDS.keys() - {"nearest"}:  # which drops the farthest, however near that is
        setup = driving.prepared(tiny("facade", f"guard.rule={rule}", *BRIEF))
        turn = driving.one_turn(setup, 2)
        state = setup.algorithm.local(turn, setup.algorithm.init(turn.shard))
        state = torch.utils._pytree.tree_map(lambda leaf: leaf[:1].expand_as(leaf).clone(), state)
        message = setup.algorithm.message(turn, state)
        heard = driving.inbox_of(turn.shard, message, setup.algorithm.wanted(turn, state))
        mixed = setup.algorithm.mix(turn, state, heard)
        assert (mixed.dropped == -1).all(), rule
        assert not mixed.closed.any(), rule
