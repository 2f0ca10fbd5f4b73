"""Runs under attack: the same bits however they are computed, and whose numbers they are."""

import copy
import json

import numpy as np
import pytest

from experiments import digits
from facade import run
from facade.attacks.poisoned_data import TARGET
from facade.core.tree import digest
from facade.experiment.setup import set_up
from facade.runs import history
from facade.testing import contract as checks
from facade.testing import driven as driving
from facade.testing.contract import assert_same, tiny
from runs import stopped

BRIEF = ("data.clusters=4:2", "training.rounds=4", "evaluation.every=2", "attack.nodes=[1, 3]")
HOLDS = [check for check in checks.CHECKS if check is not checks.check_equal_states_stay_equal]
"""Where nodes are in the same state, attackers say something else: what others mix is not what all have."""


def attacked(kind, *settings, name="facade"):
    return tiny(name, "guard.rule=fair", f"attack.kind={kind}", *BRIEF, *settings)


@pytest.mark.parametrize("check", HOLDS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("kind", ["sign-flip", "stale", "false-head", "label-flip", "silent"])
def test_a_guarded_run_under_attack_keeps_the_contract(kind, check):
    check(attacked(kind, "attack.start=1"))


def test_parts_that_stay_at_their_node_change_nothing_about_that():
    checks.check_shard_invariant(attacked("sign-flip", "model.name=contract.own:Normed"))


@pytest.mark.parametrize("kind", ["alie", "mimic", "adaptive-core", "adaptive-head"])
def test_a_run_whose_attackers_see_all_is_repeatable_and_resumable(kind):
    checks.check_repeatable(attacked(kind))
    checks.check_resumable(attacked(kind, "attack.start=1"))


def test_before_its_start_an_attack_changes_nothing():
    honest, later = (
        driving.driven(driving.prepared(tiny("facade", *BRIEF[:3], *s)))
        for s in ((), ("attack.kind=sign-flip", "attack.nodes=[1]", "attack.start=2"))
    )
    models = [[digest(getattr(post.state, "inner", post.state), 6) for (post,) in r.posts] for r in (honest, later)]
    assert models[0][:3] == models[1][:3]
    assert models[0][3] != models[1][3]


def test_attackers_themselves_go_on_with_what_they_really_have():
    """An attacker that nobody hears is as in a run without attack."""
    deaf = ("network.loss=0.9999999999", "algorithm.all_reduce=false", *BRIEF[:3])
    honest, bad = (
        driving.result_of(tiny("facade", *deaf, *s)).summary["model_sha256"]
        for s in ((), ("attack.kind=sign-flip", "attack.nodes=[1]"))
    )
    assert honest == bad


def test_a_stopped_run_under_attack_ends_as_if_it_had_not_been(tmp_path):
    experiment = digits(
        "guard.rule=fair", "attack.kind=label-flip", "attack.nodes=[2]", clusters="5:2", rounds=8, steps=2, every=2
    )
    stopped(experiment, tmp_path / "run", after=3)
    assert_same(run(experiment, tmp_path / "run", resume=True), run(experiment))


def test_samples_are_falsified_once_however_often_a_run_is_set_up():
    """As on Ray, where every worker sets the run up again with the data that it is given."""
    experiment = attacked("label-flip")
    first = set_up(experiment)
    again = set_up(experiment, first.federation)
    for setup in (first, again):
        held = setup.shard(np.array([1])).data
        true = setup.federation.training
        assert held.samples.y[held.rows[0]].tolist() == (9 - true.samples.y[true.rows[1]]).tolist()


def test_a_finite_but_enormous_message_does_not_make_a_guarded_node_diverge():
    """Not so with the median, the trimmed mean or Krum: of two that use a head, none can be left out."""
    for rule in ("fair", "balance", "own-data", "clip", "nearest"):
        result = driving.result_of(
            tiny("facade", f"guard.rule={rule}", "attack.kind=attacks.own:Enormous", *BRIEF[:3], "attack.nodes=[1]")
        )
        honest = [node for node in range(6) if node != 1]
        assert all(leaf[honest].abs().max() < 100 for leaf in result.models.values()), rule


def test_the_recommended_guard_keeps_a_sign_flip_off():
    long = ("data.clusters=5:3", "training.rounds=25", "training.steps=5", "training.batch=8", "evaluation.every=25")
    bad = ("attack.kind=sign-flip", "attack.nodes=[0]")
    clean, guarded, alone = (
        driving.result_of(tiny("facade", *long, *settings)).summary for settings in ((), (*bad, "guard.rule=fair"), bad)
    )
    assert guarded["all"] > clean["all"] - 0.1  # without a survey, models are too weak at first to tell
    assert alone["all"] < clean["all"] - 0.2
    assert guarded["guard"]["dropped"]["attackers"] > 0.9
    assert guarded["guard"]["dropped"]["honest"] < 0.1


# Whose numbers they are


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The same run's directory, and what its rows say of all nodes."""
    path = tmp_path_factory.mktemp("attacked") / "run"
    experiment = digits(
        "guard.rule=fair",
        "attack.kind=backdoor",
        "attack.nodes=[0, 4]",
        "attack.start=2",
        clusters="5:3",
        rounds=9,
        steps=2,
        every=3,
    )
    return path, run(experiment, path)


def of_nodes(result, kind, nodes):
    return [row for row in result.rows if row["kind"] == kind and row["node"] in nodes]


HONEST = [1, 2, 3, 5, 6, 7]


def test_a_summary_is_of_honest_nodes(both):
    _, result = both
    finals = of_nodes(result, "final", HONEST)
    shares = [np.trace(row["confusion"]) / np.sum(row["confusion"]) for row in finals]
    assert result.summary["all"] == pytest.approx(np.mean(shares))
    assert result.summary["clusters"] == pytest.approx([np.mean(shares[:3]), np.mean(shares[3:])])
    assert result.summary["worst_node"] == pytest.approx(min(shares))
    heard = sum(row["bytes"] for row in of_nodes(result, "round", HONEST))
    assert result.summary["bytes_per_node"] == heard / 6
    assert len(result.summary["choice"]) == 8, "of every node, in its place"


def test_so_is_what_is_read_from_its_rows_later(both):
    path, result = both
    past = history.load(path)
    assert past.nodes.tolist() == HONEST
    assert past.cluster.tolist() == [0, 0, 0, 1, 1, 1]
    assert past.final.confusion.tolist() == [row["confusion"] for row in of_nodes(result, "final", HONEST)]
    assert past.choice.shape == (9, 6)
    assert past.heard.sum() == pytest.approx(result.summary["bytes_per_node"])
    assert past.attack == "Accuracies are of the 6 honest nodes; nodes 0 and 4 attack: backdoor from round 2 on"


def test_how_much_a_guard_dropped_is_counted_by_who_sent_it(both):
    _, result = both
    facts, setup = copy.deepcopy(result.summary["guard"]), set_up(result.experiment)
    assert facts["after_round"] == 3
    dropped, heard, closed = np.zeros(8), np.zeros(8), 0
    for row in of_nodes(result, "round", HONEST):
        if row["round"] > 3:
            receiver, sender = setup.plan.graph(row["round"] - 1).into(np.array([row["node"]]))
            assert len(receiver) == row["bytes"] / (result.rows[0]["bytes"] / 4)
            heard[sender] += 1
            dropped[sorted({s for s in row["dropped"] if s >= 0})] += 1
            closed += row["gate_closed"]
    groups = {"honest": HONEST, "attackers": [0, 4]}
    shares = {name: dropped[of].sum() / heard[of].sum() for name, of in groups.items()}
    clusters = [dropped[of].sum() / heard[of].sum() for of in (HONEST[:3], HONEST[3:])]
    assert facts["dropped"].pop("clusters") == pytest.approx(clusters)
    assert facts["dropped"] == pytest.approx(shares)
    assert facts["gate_closed"] == pytest.approx(closed / 36)


def test_a_backdoor_works_as_often_as_triggered_samples_are_taken_for_its_class(both):
    _, result = both
    matrices = [np.array(row["triggered_confusion"]) for row in of_nodes(result, "final", HONEST)]
    shares = [matrix[:, TARGET].sum() / matrix.sum() for matrix in matrices]
    assert result.summary["backdoor"]["all"] == pytest.approx(np.mean(shares))
    assert result.summary["backdoor"]["clusters"] == pytest.approx([np.mean(shares[:3]), np.mean(shares[3:])])


SENTENCE = "Accuracies are of the 6 honest nodes; nodes 0 and 4 attack: backdoor from round 2 on"


def test_tables_say_whose_accuracies_they_have(both, command):
    path, _ = both
    for format in ("--markdown", "--latex", "--json"):
        assert SENTENCE in command("show", path, format).out
    assert SENTENCE in " ".join(command("show", path).out.split())


def test_the_terminal_says_it_and_marks_attackers_in_their_place(both, command):
    path, result = both
    told = command("run", path / "experiment.toml", "--out", path, "--resume")
    words = " ".join(told.out.split())
    assert f"{SENTENCE}." in words
    assert "Of what honest nodes sent, honest nodes dropped" in words
    assert "The backdoor works on" in words
    choice = "".join("x" if node in (0, 4) else str(c) for node, c in enumerate(result.summary["choice"]))
    assert f"{choice[:5]} {choice[5:]}" in words


def test_the_terminal_says_it_before_the_first_number(tmp_path, command):
    experiment = digits("attack.kind=noise", "attack.nodes=[3]", clusters="4:2", rounds=2, steps=1, every=2)
    (tmp_path / "noisy.toml").write_text(experiment.toml())
    told = command("run", tmp_path / "noisy.toml", "--out", tmp_path / "run")
    assert "Accuracies are of the 5 honest nodes; node 3 attacks: noise from round 0 on." in told.err


def test_a_gate_says_it_too(both, command, tmp_path):
    (tmp_path / "fair.toml").write_text("min_cluster_accuracy = 0.1\n")
    told = command("check", both[0], "--contract", tmp_path / "fair.toml", "--json")
    assert SENTENCE in json.loads(told.out)["verdicts"][0]["experiment"]


def test_gains_are_those_of_the_same_nodes(both, tmp_path):
    from facade.analysis.statistics import alone, gains

    path, result = both
    settings = ("attack.kind=none", "attack.nodes=[]", "attack.start=0", "guard.rule=none", "algorithm.name=local")
    run(result.experiment.with_(*settings), tmp_path / "local")
    attacked, local = history.load(path), history.load(tmp_path / "local")
    assert alone(attacked, [local]) is local, "what attackers make of their samples is no other data"
    of_local = [np.trace(m) / m.sum() for m in local.final.confusion[HONEST]]
    of_run = [np.trace(m) / m.sum() for m in attacked.final.confusion]
    assert gains(attacked, local) == pytest.approx(np.array(of_run) - np.array(of_local))


def test_models_of_a_run_with_attackers_are_not_for_use(both, command, tmp_path):
    told = command("export", both[0], "--node", 1, "-o", tmp_path / "model")
    assert told.code == 2
    assert "some nodes attacked (backdoor)" in told.err


def test_who_has_a_silent_neighbour_hears_less():
    rows = driving.driven(driving.prepared(attacked("silent"))).rows()
    assert len({row["bytes"] for row in rows if row["kind"] == "round"}) > 1


@pytest.mark.parametrize("nodes", [[1, 3], []])
def test_who_knows_of_no_bid_when_all_have_made_one_is_not_heard_again(nodes):
    surveyed = ("algorithm.seeding=class-means", "algorithm.heads=auto", "training.rounds=22", "evaluation.every=22")
    trouble = ("network.offline=0.2", "network.loss=0.1", "data.clusters=6:2")
    attack = ("attack.kind=stale", f"attack.nodes={nodes}") if nodes else ()
    state = driving.driven(set_up(tiny("facade", "guard.rule=fair", *surveyed, *trouble, *attack))).state
    guarded = state if hasattr(state, "caught") else state.inner
    assert np.nonzero(guarded.caught.any(0).numpy())[0].tolist() == nodes
