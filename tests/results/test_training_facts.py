"""A run that learned nothing says so, and says it again wherever its numbers stand."""

import json
import math

import pytest

from facade import run
from facade.report.facts import comparisons
from facade.report.verdicts import verdicts
from facade.runs.history import load, load_all
from facade.runs.training_facts import mean_train_loss, training_facts
from results.conftest import tiny

GUESSING = math.log(10)


@pytest.mark.parametrize(
    ("losses", "learned"),
    [
        ([GUESSING, GUESSING], False),
        ([9e9, 40.0, 2.4], False),  # it fell, but no further than a model that knows nothing
        ([GUESSING, 1.5, 3.0], True),
        ([0.1, 0.2], True),  # it began with a model that knew everything
        ([*[GUESSING, 0.9 * GUESSING, 1.1 * GUESSING] * 20], False),  # up and down, as batches are
        ([None, 1.5], True),
        ([None], True),
        ([], True),
    ],
)
def test_who_never_did_better_than_guessing_has_learned_nothing(losses, learned):
    assert (training_facts(losses, 10) == {}) == learned


def test_a_loss_that_no_node_has_is_unknown():
    assert mean_train_loss([{"train_loss": 1.0}, {"train_loss": None}, {}, {"train_loss": 2.0}]) == 1.5
    assert mean_train_loss([{"train_loss": None}]) is None


def test_a_run_that_learned_nothing_says_so_in_the_terminal(command, tmp_path):
    (tmp_path / "e.toml").write_text(tiny("algorithm.name=el", "training.lr=20").toml())
    ended = command("run", tmp_path / "e.toml", "--out", tmp_path / "run")
    assert ended.code == 0, ended.err
    assert "el: The training loss never fell below that of guessing (2.303)" in " ".join(ended.out.split())
    facts = json.loads((tmp_path / "run" / "result.json").read_text())["never_learned"]
    assert facts["lowest_loss"] > 0.99 * facts["guessing"]
    shown = command("show", tmp_path / "run").out
    assert "The training loss never fell, so that nothing was learned: el (seeds 1)" in " ".join(shown.split())
    (verdict,) = verdicts(comparisons(load_all([tmp_path / "run"]))[0])
    assert verdict.endswith("el learned nothing with seed 1: its training loss never fell.")


def test_a_run_that_learned_something_says_nothing_of_it(tmp_path):
    result = run(tiny("algorithm.name=el", "training.lr=0.3", "training.steps=5"), tmp_path / "run")
    assert "never_learned" not in result.summary
    assert load(tmp_path / "run").learned
