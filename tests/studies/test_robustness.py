"""The study of robustness: what is kept of a run, that it can be repeated, and the page drawn from it."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from facade import Experiment, run
from facade.studies import computing, robustness
from facade.studies.kept_lines import Case, KeptLines, of_guard_and_attack
from facade.studies.robustness import BACKDOOR, EL, FACADE, NOBODY, Threat
from facade.studies.robustness_bars import EVERY, bars
from facade.studies.robustness_numbers import RobustnessRuns, dropped_of, dropped_of_attackers
from facade.studies.robustness_page import drawn
from facade.studies.table import STUDIES

CLONE = Path(__file__).parents[2]
KEPT = CLONE / "results" / "robustness.jsonl.gz"
PAGE = CLONE / "docs" / "robustness.md"

SMALL = {
    "data.source": "digits", "data.clusters": "3:2", "topology.degree": 2, "training.rounds": 3, "training.steps": 1,
    "algorithm.name": "el",
}  # fmt: skip


def small(seeds, **more):
    return Case("small", "el", SMALL | {name.replace("_", ".", 1): value for name, value in more.items()}, seeds)


@pytest.fixture(scope="module")
def kept():
    return KeptLines(KEPT)


def test_the_page_is_drawn_from_what_is_kept(kept):
    assert PAGE.read_text() == drawn(kept)
    assert kept.missing(robustness.cases()) == []
    assert KEPT.stat().st_size <= 2_000_000


def test_a_page_can_be_drawn_before_anything_is_computed(tmp_path):
    page = drawn(KeptLines(tmp_path / "none.jsonl.gz"))
    assert "nan" not in page
    assert "Computed: 0 of " in page


@pytest.mark.parametrize("threat", [NOBODY, Threat("sign-flip")])
def test_a_kept_run_can_be_repeated(threat, kept, tmp_path):
    once = Case("attacks", threat.name, robustness.digits("fair", threat), (1,))
    again = KeptLines(tmp_path / "again.jsonl.gz")
    again.add(computing._line(once, 1, "data"))
    (then,), (now,) = kept.runs(once), again.runs(once)
    # Another processor rounds differently, and 120 rounds later a few images in a hundred are taken for others.
    assert now.clusters == pytest.approx(then.clusters, abs=3)
    assert (now.settled, now.heads) == (then.settled, then.heads)
    assert dropped_of(now, 1) == pytest.approx(dropped_of(then, 1), abs=3)


def test_every_attack_meets_no_guard_and_the_recommended_one():
    attacked = {(case.settings.get("guard.rule"), case.settings.get("attack.kind")) for case in robustness.attacks()}
    assert attacked >= {(rule, threat.kind) for rule in (None, "fair") for threat in robustness.THREATS}


def test_cases_are_experiments_and_a_run_of_two_questions_is_computed_once(tmp_path):
    cases = [*robustness.cases(), *robustness.cifar_cases()]
    for case in cases:
        computing.experiment_of(case, case.seeds[0], "data")
    missing = KeptLines(tmp_path / "none.jsonl.gz").missing(cases)
    keys = [case.key(seed) for case, seed in missing]
    assert len(keys) == len(set(keys)) < sum(len(case.seeds) for case in cases)


def test_a_run_that_diverges_is_kept_as_guessing_and_the_others_go_on(tmp_path):
    cases = [small((1,), training_lr=1e30), small((1,))]
    kept = KeptLines(tmp_path / "kept.jsonl.gz")
    computing.compute(kept.missing(cases), kept, 1, "data", lambda words: None)
    ((lost,), (well,)) = (KeptLines(kept.path).runs(case) for case in cases)
    assert (lost.diverged, well.diverged) == (True, False)
    assert lost.clusters == pytest.approx([10, 10])
    assert (lost.settled, lost.heads, lost.dropped) == (None, 0, None)


def test_attackers_are_left_out_of_accuracies(tmp_path):
    case = small((1,), attack_kind="noise", attack_nodes=[1, 4])
    kept = KeptLines(tmp_path / "kept.jsonl.gz")
    kept.add(computing._line(case, 1, "data"))
    (found,) = kept.runs(case)
    right = np.array([np.trace(matrix) / matrix.sum() for matrix in found.confusion])
    assert found.clusters == pytest.approx([100 * right[[0, 2]].mean(), 100 * right[3]])
    assert found.worst_node == pytest.approx(100 * right[[0, 2, 3]].min())


def test_what_is_dropped_counts_once_for_every_node_and_round():
    case = small((1,), attack_nodes=[2])
    rounds = [
        {"round": 40, "dropped": [0, 1, -1], "gate_closed": True},
        {"round": 41, "dropped": [2, 2, -1], "gate_closed": False},
        {"round": 41, "dropped": [2, 0, -1], "gate_closed": True},
    ]
    to_target, to_another = [[0, 0], [4, 0]], [[0, 0], [0, 4]]
    matrices = [to_target, to_another, to_target]
    finals = [{"node": node, "triggered_confusion": matrix} for node, matrix in enumerate(matrices)]
    line = of_guard_and_attack(case, finals, rounds)
    assert line == {"dropped": [1, 0, 2], "gates_closed": 1, "triggered": 0.5}


def made_up(case, seed, majority, minority, **more):
    """A line of a run with these accuracies."""
    cluster = [0] * 30 + [1] * 2
    matrices = [[accuracy, 1000 - accuracy, 0, 0] for accuracy in (majority, minority)]
    return {
        "settings": dict(case.settings), "seed": seed, "confusion": matrices, "of_node": cluster, "cluster": cluster,
        "choice": cluster, "settled": True, "noted": {},
    } | more  # fmt: skip


@pytest.fixture
def as_hoped(tmp_path):
    """A whole study that shows all that it had to show."""
    kept = KeptLines(tmp_path / "kept.jsonl.gz")
    for case in [*robustness.cases(), *robustness.cifar_cases()]:
        rule, hit = case.settings.get("guard.rule", "none"), case.settings.get("attack.kind")
        minority = {"none": 700 if hit else 900, "fair": 880 if hit else 897}.get(rule, 750)
        dropped = {} if rule == "none" else {"dropped": [16] * 32, "gates_closed": 0}
        trigger = {"triggered": 0.1} if hit == BACKDOOR.kind else {}
        for seed in case.seeds:
            kept.add(made_up(case, seed, 970, minority, **dropped, **trigger))
    return kept


def test_a_study_that_shows_everything_meets_all_bars(as_hoped):
    assert [bar.what for bar in bars(RobustnessRuns(as_hoped)) if not bar.met] == []
    assert "All of it was seen." in drawn(as_hoped)


def test_one_attack_that_gets_through_is_named_first(as_hoped):
    case = Case("", "", robustness.digits("fair", EVERY[2]), robustness.SEEDS)
    for seed in case.seeds:
        as_hoped.add(made_up(case, seed, 970, 860, dropped=[64] * 32, gates_closed=0))
    missed = [bar for bar in bars(RobustnessRuns(as_hoped)) if not bar.met]
    assert [f"({EVERY[2].name})" in bar.seen for bar in missed] == [True, True, True]
    table = drawn(as_hoped).split("## What it had to show")[1].split("##")[0]
    met = [line.endswith("| yes |") for line in table.splitlines() if line.startswith("|")][2:]
    assert met == sorted(met)
    assert met.count(False) == 3


def test_shares_of_dropped_messages_are_told_by_sender(as_hoped):
    case = Case("", "", robustness.digits("fair", EVERY[0]), (1,))
    counts = [320 if node in (3, 11, 20) else 8 if node >= 30 else 0 for node in range(32)]
    as_hoped.add(made_up(case, 1, 970, 880, dropped=counts, gates_closed=3))
    (found,) = as_hoped.runs(case)
    assert [dropped_of(found, 0), dropped_of(found, 1), dropped_of_attackers(found)] == [0, 2.5, 100]


def test_rules_are_compared_under_an_attack_that_means_something_to_the_algorithm():
    kinds = [{threat.kind for threat in robustness.rule_threats(algorithm)} for algorithm in (EL, FACADE)]
    assert kinds[0] ^ kinds[1] == {"noise", "false-head"}


def test_a_rule_and_an_attack_of_ones_own_run_as_the_page_says(tmp_path, monkeypatch):
    (code,) = re.findall(r"```python\n# mine.py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "mine.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    stages = {"guard": {"rule": "mine:Within"}, "attack": {"kind": "mine:Halve", "nodes": [1]}}
    result = run(Experiment.of(computing.experiment_of(small((1,)), 1, "data").model_dump() | stages, ()))
    monkeypatch.delitem(sys.modules, "mine")
    noted = [row["dropped"] for row in result.rows if row["kind"] == "round"]
    assert len(noted) == 15


def test_the_command_draws_the_page_and_its_help_names_every_study(command, tmp_path):
    page = tmp_path / "page.md"
    ended = command("study", "robustness", "--draw", "--results", str(KEPT.parent), "--page", str(page))
    assert ended.code == 0, ended.err
    assert page.read_text() == PAGE.read_text()
    told = command("study", "--help").out
    assert all(name in told for name in STUDIES)
