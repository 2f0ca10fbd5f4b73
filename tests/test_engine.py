import dataclasses
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from facade import ExperimentError, run
from facade.algorithms.el import EL
from facade.core import tree
from facade.core.engine import evaluate
from facade.core.messages import EVERYONE
from facade.core.network import Network
from facade.core.plan import deliver
from facade.learning.measures import measured
from facade.learning.stopwatch import Stopwatch
from facade.testing.contract import tiny
from facade.testing.driven import driven, one_turn, prepared


@pytest.fixture
def plan():
    return dataclasses.replace(prepared(tiny("el")).plan, rounds=10, every=4)


def test_evaluations_come_every_so_many_rounds_and_after_the_last(plan):
    assert [done for done in range(1, 11) if plan.evaluates(done)] == [4, 8, 10]


def test_a_fixed_graph_is_that_of_round_0(plan):
    fixed = dataclasses.replace(plan, fresh=False)
    assert np.array_equal(fixed.graph(7).sender, plan.graph(0).sender)
    assert not np.array_equal(plan.graph(7).sender, plan.graph(0).sender)


def test_rows_judge_the_chosen_head_and_the_best_one_only_when_asked():
    found = {}
    for head in ("chosen", "oracle"):
        setup = prepared(tiny("facade", "algorithm.heads=3", "algorithm.warmup=0", f"evaluation.head={head}"))
        journey, parts = driven(setup), setup.federation
        models = setup.algorithm.models(journey.state) if head == "oracle" else [setup.algorithm.model(journey.state)]
        expected = evaluate(setup.shards()[0], models, parts.tests, parts.test_of)
        found[head] = [row["confusion"] for row in journey.rows() if row["kind"] == "final"]
        assert found[head] == expected.confusion.tolist()
    assert found["chosen"] != found["oracle"]


def test_validation_numbers_are_measured_on_validation_data():
    setup = prepared(tiny("el", "data.validation=0.2"))
    journey, parts = driven(setup), setup.federation
    expected = evaluate(setup.shards()[0], [setup.algorithm.model(journey.state)], parts.validations, parts.test_of)
    finals = [row for row in journey.rows() if row["kind"] == "final"]
    assert [row["validation_confusion"] for row in finals] == expected.confusion.tolist()
    assert expected.confusion[0].sum() == len(parts.validations[0]) != len(parts.tests[0])


def test_rows_hold_measures_of_the_outputs_that_gave_the_confusion_matrix():
    setup = prepared(tiny("el", "data.validation=0.2"))
    journey, parts = driven(setup), setup.federation
    tested = [row for row in journey.rows() if row["kind"] != "round"]
    assert all(row["measures"]["log_loss"][0] == row["loss"] for row in tested)
    assert all(row["validation_measures"]["log_loss"][0] == row["validation_loss"] for row in tested)
    models = setup.algorithm.model(journey.state)
    for row in (row for row in tested if row["kind"] == "final"):
        test = parts.tests[parts.test_of[row["node"]]]
        module = setup.learner.module(tree.rows(models, row["node"]))
        with torch.no_grad():
            logits = module(setup.learner.inputs.prepare(test.x, torch.float32, "cpu"))
        auc, *_, calibration_error = measured(logits[None], test.y)[0].tolist()
        assert row["measures"]["auc"][0] == pytest.approx(auc, rel=1e-3)
        assert row["measures"]["calibration_error"] == pytest.approx(calibration_error, rel=1e-3)


def test_a_part_of_the_test_sets_is_asked_for_by_name():
    assert len(prepared(tiny("el", "evaluation.images=20")).federation.tests[0]) == 20


def test_a_quiet_network_hands_on_what_is_wanted_untouched():
    shard = prepared(tiny("el")).shards()[0]
    assert deliver(Network(), shard, 0, EVERYONE) is EVERYONE


def test_posts_carry_the_state_before_the_round_and_the_rows_of_the_one_before():
    setup = prepared(tiny("el"))
    posts = [shard[0] for shard in driven(setup).posts]
    assert [post.round for post in posts] == [0, 1, 2, 3, 4]
    assert [{row["round"] for row in post.rows} for post in posts] == [set(), {1}, {2}, {3}, {4}]
    assert tree.digest(posts[0].state, 8) == tree.digest(setup.algorithm.init(setup.shards()[0]), 8)


class Forgetful:
    """An algorithm that notes numbers it did not compute."""

    def __init__(self, algorithm):
        self._algorithm = algorithm

    def __getattr__(self, name):
        return getattr(self._algorithm, name)

    def notes(self, state):
        flat = torch.full((8,), torch.nan)
        deep = torch.full((8, 2, 2), torch.nan)
        flat[0], deep[0, 1, 0] = 1.5, 2.5
        return {"train_loss": state.loss, "flat": flat, "deep": deep, "whole": torch.arange(8)}


def test_numbers_that_were_not_computed_are_recorded_as_null_whatever_their_shape():
    setup = prepared(tiny("el", "training.rounds=1"))
    rows = driven(dataclasses.replace(setup, algorithm=Forgetful(setup.algorithm))).rows()
    noted = [row for row in rows if row["kind"] == "round"]
    assert [row["flat"] for row in noted] == [1.5] + [None] * 7
    assert noted[0]["deep"] == [[None, None], [2.5, None]]
    assert [row["whole"] for row in noted] == list(range(8))


def test_samples_are_drawn_for_a_rounds_steps_unless_told_otherwise():
    turn = one_turn(prepared(tiny("el")), 2)
    assert turn.samples("train").count == 2 * 4
    assert turn.samples("core", 5).count == 5 * 4
    assert turn.samples("core", 5).of(slice(0, 3)).y.shape == (3, 20)


@pytest.mark.parametrize("executor", ["stacked", "looped"])
def test_of_several_models_the_oracle_takes_the_one_with_the_lowest_test_loss(executor):
    setup = prepared(tiny("facade", "algorithm.heads=3", "algorithm.warmup=0", f"runtime.executor={executor}"))
    shard, federation = setup.shards()[0], setup.federation
    state = driven(setup).states()[-2]
    models = setup.algorithm.models(state)
    each = [evaluate(shard, [model], federation.tests, federation.test_of) for model in models]
    best = evaluate(shard, models, federation.tests, federation.test_of)
    for node in range(8):
        winner = min(range(3), key=lambda j: each[j].loss[node].item())
        assert best.loss[node] == each[winner].loss[node]
        assert torch.equal(best.confusion[node], each[winner].confusion[node])


def test_the_deployed_head_is_the_chosen_one_not_the_best_on_test_data():
    setup = prepared(tiny("facade", "algorithm.heads=3", "algorithm.warmup=0"))
    state = driven(setup).state
    for node, choice in enumerate(state.facade.choice.tolist()):
        assert torch.equal(
            setup.algorithm.model(state)["head.weight"][node], state.facade.heads["head.weight"][node, choice]
        )


def test_equal_models_on_the_same_test_set_are_evaluated_once(monkeypatch):
    setup = prepared(tiny("el"))
    counted = []
    examine = setup.learner.examine
    monkeypatch.setattr(
        setup.learner,
        "examine",
        lambda models, *rest: counted.append(len(models["head.bias"])) or examine(models, *rest),
    )
    driven(setup)
    assert counted == [8, 8, 2]


class Counting(EL):
    """Keeps its loss in a type of numbers that no file of states holds."""

    def init(self, shard):
        state = super().init(shard)
        return state._replace(loss=state.loss.to(torch.complex64))


def test_a_state_that_no_checkpoint_could_hold_is_refused_before_the_first_round():
    with pytest.raises(ExperimentError, match=r"keeps 'loss' as torch.complex64, which a checkpoint cannot hold; use"):
        driven(prepared(tiny("test_engine:Counting")))


def test_what_a_phase_inside_another_takes_is_counted_once(monkeypatch):
    clock = iter([0.0, 1.0, 4.0, 6.0, 7.0, 10.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    watch = Stopwatch()
    with watch.phase("mix"):
        with watch.phase("compare"):
            pass
        with watch.phase("compare"):
            pass
    assert watch.lap() == {"compare": 4.0, "mix": 6.0}


def test_a_run_without_final_exchange_repeats_its_last_evaluation():
    rows = driven(prepared(tiny("local"))).rows()
    last = [row for row in rows if row["kind"] == "evaluation" and row["round"] == 4]
    assert [row for row in rows if row["kind"] == "final"] == [{**row, "kind": "final", "bytes": 0} for row in last]


@dataclass(frozen=True)
class Noting(EL):
    """EL that notes whatever it is told to."""

    what: str = ""

    def notes(self, state):
        few = {"train_loss": state.loss}
        return {
            "round": few | {"round": state.loss},
            "nothing": {},
            "number": few | {"clip": 3},
            "short": few | {"clip": state.loss[:1]},
            "choice": few | {"choice": state.loss},
            "infinite": few | {"clip": torch.full_like(state.loss, torch.inf)},
        }[self.what]


@pytest.mark.parametrize(
    ("what", "said"),
    {
        "round": "has 'round', which every row has already",
        "nothing": "has no 'train_loss'",
        "number": "has 'clip' of type int; expected a tensor with 8 rows",
        "short": r"has 'clip' of shape \[1\]; expected a tensor with 8 rows",
        "choice": "has 'choice' of torch.float32; expected the heads' numbers as int64",
    }.items(),
)
def test_notes_that_rows_cannot_hold_are_refused(what, said):
    with pytest.raises(ExperimentError, match=said):
        run(tiny("test_engine:Noting", f"algorithm.what={what}"))


def test_what_is_no_number_is_noted_as_none():
    rows = run(tiny("test_engine:Noting", "algorithm.what=infinite")).rows
    assert {row["clip"] for row in rows if row["kind"] == "round"} == {None}
