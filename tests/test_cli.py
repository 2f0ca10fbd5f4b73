"""The command line as a person meets it: what is printed, what is written, how it ends."""

import json
import os
import subprocess
import sys

import pytest

from facade.algorithms import ALGORITHMS
from facade.analysis.fairness_gate import CLAUSES
from facade.analysis.measures import MEASURES
from facade.analysis.metrics import METRICS
from facade.core.topology import TOPOLOGIES
from facade.data.partition import PARTITIONS
from facade.data.skews import SKEWS
from facade.data.sources import SOURCES
from facade.experiment.sections import SECTIONS
from facade.learning.models import MODELS
from facade.sweep.jobs import SELECTABLE
from surroundings import ROOT, loaded_by

DIGITS = """
[data]
source = "digits"
clusters = "6:2"
[topology]
degree = 2
[training]
rounds = 4
steps = 2
[algorithm]
warmup = 1
seeding = "none"
"""
KEYS = {
    "clusters", "all", "worst_node", "fair_accuracy", "dp", "eo", "dp_sum", "eo_sum", "bytes_per_node",
    "bytes_final", "separated", "settled", "choice", "seconds", "model_sha256", "state_sha256", "run_dir",
}  # fmt: skip


@pytest.fixture(autouse=True)
def typed_in_the_root(monkeypatch):
    """Commands are typed where the repository lies."""
    monkeypatch.chdir(ROOT)


@pytest.fixture
def digits(tmp_path):
    (tmp_path / "digits.toml").write_text(DIGITS)
    return tmp_path / "digits.toml"


def test_a_run_prints_a_table_and_writes_a_run_directory(command, digits, tmp_path):
    ended = command("run", digits, "--out", tmp_path / "run", "--json")
    assert ended.code == 0, ended.err
    assert "majority" in ended.err, "a table beside the JSON would be in the way of a program that reads it"
    last = json.loads(ended.out)
    assert last["run_dir"] == str(tmp_path / "run")
    assert set(last["algorithms"]["facade"]) >= KEYS
    files = {path.name for path in (tmp_path / "run").iterdir()}
    assert files == {
        "experiment.toml", "federation.json", "environment.json", "rows.jsonl", "timings.jsonl",
        "moments.safetensors", "models.safetensors", "result.json",
    }  # fmt: skip
    rows = [json.loads(line) for line in (tmp_path / "run" / "rows.jsonl").read_text().splitlines()]
    assert [row["node"] for row in rows[:8]] == list(range(8))
    assert {row["kind"] for row in rows} == {"round", "evaluation", "final"}
    assert not any("seconds" in row or "time" in row for row in rows)
    final = [row for row in rows if row["kind"] == "final"]
    assert sum(map(sum, final[0]["confusion"])) == 355


def test_progress_comes_in_plain_lines_when_piped(command, digits, tmp_path):
    ended = command("run", digits, "--set", "evaluation.every=2", "--out", tmp_path / "run")
    assert "round   2/4" in ended.err
    assert "\x1b" not in ended.err + ended.out


def test_a_directory_that_holds_a_run_is_refused(command, digits, tmp_path):
    assert command("run", digits, "--out", tmp_path / "run").code == 0
    before = (tmp_path / "run" / "rows.jsonl").read_bytes()
    again = command("run", digits, "--out", tmp_path / "run")
    assert again.code == 2
    assert "already holds a run of this experiment" in again.err
    other = command("run", digits, "--set", "seed=2", "--out", tmp_path / "run")
    assert other.code == 2
    assert "already holds a run of another experiment" in other.err
    assert (tmp_path / "run" / "rows.jsonl").read_bytes() == before


BAD = {
    "algorithm.name=facde": "did you mean 'facade'?",
    "data.source=digit": "unknown dataset 'digit'; did you mean 'digits'?",
    "model.name=mpl": "unknown model 'mpl'; did you mean 'mlp'?",
    "topology.degree=1": "topology.degree = 1 is not possible with 8 nodes; give 2 to 7",
    "topology.degree=8": "topology.degree = 8 is not possible with 8 nodes; give 2 to 7",
    "data.clusters=200:100": "more nodes than images",
    "data.clusters=3:2:2": "topology.degree",
    "data.skew=rotat": "unknown skew 'rotat'; did you mean 'rotate'?",
    "model.head=tail": "model.head = 'tail' names no parameter; the model has: core.1.weight",
}
EXTRA = {"data.clusters=3:2:2": ["--set", "topology.degree=3"]}


@pytest.mark.parametrize("setting", BAD)
def test_bad_input_costs_one_sentence_and_writes_nothing(command, setting, digits, tmp_path):
    ended = command("run", digits, "--set", setting, *EXTRA.get(setting, []), "--out", tmp_path / "run")
    assert ended.code == 2
    assert BAD[setting] in ended.err
    assert ended.err.count("\n") == 1
    assert "Traceback" not in ended.err
    assert not (tmp_path / "run").exists()


def test_an_unreadable_file_is_one_sentence(command, tmp_path):
    (tmp_path / "broken.toml").write_text("[data\n")
    for name, sentence in {"broken.toml": "is not valid TOML", "missing.toml": "cannot be read"}.items():
        ended = command("run", tmp_path / name)
        assert ended.code == 2
        assert sentence in ended.err


def test_debug_shows_where_an_error_was_raised(command, digits):
    ended = command("--debug", "run", digits, "--set", "algorithm.name=x")
    assert ended.code == 2
    assert "Traceback" in ended.err


def test_training_that_diverges_ends_with_exit_code_1(command, digits, tmp_path):
    ended = command("run", digits, "--set", "training.lr=1e30", "--out", tmp_path / "run")
    assert ended.code == 1
    assert "training diverged in round" in ended.err
    assert "learning rate 1e+30" in ended.err


def test_an_algorithm_of_ones_own_runs_from_the_command_line(command, tmp_path):
    ended = command("run", "examples/quick_mean.toml", "--set", "training.rounds=12", "--out", tmp_path / "r", "--json")
    assert ended.code == 0, ended.err
    summary = json.loads(ended.out)["algorithms"]["examples.quick_mean:QuickMean"]
    assert summary["clusters"][0] > 0.7
    assert "patience = 10" in (tmp_path / "r" / "experiment.toml").read_text()


def test_the_python_example_prints_the_accuracy_of_both_clusters():
    ended = subprocess.run(
        [sys.executable, "examples/python_api.py"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "accuracy per cluster: [0.9" in ended.stdout


NAMED = {
    "algorithms": ALGORITHMS, "datasets": SOURCES, "skews": SKEWS, "partitions": PARTITIONS, "models": MODELS,
    "topologies": TOPOLOGIES, "metrics": [*METRICS, *SELECTABLE, *(clause.number for clause in CLAUSES.values())],
    "measures": MEASURES,
    "settings": [
        "name", "seed", "algorithm.name", "override",
        *(f"{section}.{key}" for section, model in SECTIONS.items() for key in model.model_fields),
    ],
}  # fmt: skip


@pytest.mark.parametrize("what", NAMED)
def test_every_list_names_what_there_is(command, what):
    ended = command("list", what)
    assert ended.code == 0
    first = {line.split()[0] for line in ended.out.splitlines() if line.strip()}
    assert set(NAMED[what]) <= first
    assert what != "algorithms" or "core_steps = 1" in ended.out


@pytest.mark.parametrize("words", [[], ["run"], ["network"], ["network", "up"]])
def test_every_command_answers_to_the_short_option_for_help(command, words):
    ended = command(*words, "-h")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == command(*words, "--help").out
    assert "Usage: facade" in ended.out


def test_help_does_not_import_torch():
    asked = "sys.argv = ['facade', '--help']; from facade.cli import main; main()"
    assert loaded_by(asked, "facade.cli", "torch") == ["facade.cli"]


@pytest.mark.filterwarnings("default")
def test_a_warm_up_that_covers_the_run_is_said(command, digits, tmp_path):
    ended = command("run", digits, "--set", "algorithm.warmup=9", "--out", tmp_path / "run")
    assert ended.code == 0
    assert "warning: algorithm.warmup = 9 covers all 4 rounds: this run is EL" in ended.err


def test_the_demo_refuses_a_place_that_is_taken(command, tmp_path):
    (tmp_path / "file").touch()
    for place in (tmp_path, tmp_path / "file"):
        ended = command("demo", "--out", place)
        assert ended.code == 2
        assert f"--out {place} is not empty; give a directory that is new or empty" in ended.err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_demo_shows_that_el_fails_the_minority_and_facade_does_not(command, tmp_path):
    ended = command("demo", "--out", tmp_path / "demo", "--json")
    assert ended.code == 0, ended.err
    results = json.loads(ended.out)["algorithms"]
    assert list(results) == ["local", "dpsgd", "el", "dac", "deprl", "facade"]
    gap = {name: r["clusters"][0] - r["clusters"][1] for name, r in results.items()}
    assert gap["el"] >= 0.15
    assert results["facade"]["separated"]
    assert gap["facade"] < 0.6 * gap["el"]
    assert max(len(line) for line in ended.err.splitlines() if line.startswith(("facade ", "el "))) <= 80


def test_a_value_is_not_taken_for_the_option_that_shows_where_an_error_was_raised(command, digits):
    ended = command("run", digits, "--set", "algorithm.name=x", "--out", "--debug")
    assert ended.code == 2
    assert "unknown algorithm 'x'" in ended.err
    assert "Traceback" not in ended.err


def test_an_error_of_ones_own_code_is_a_sentence_that_says_where(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from facade.algorithms.el import EL\n\n\nclass Mine(EL):\n"
        "    def mix(self, turn, state, inbox):\n        return inbox.pool['modle']\n"
    )
    (tmp_path / "mine.toml").write_text(DIGITS)
    command = [sys.executable, "-m", "facade", "run", "mine.toml", "--set", "algorithm.name=mine:Mine"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    (sentence,) = (line for line in ended.stderr.splitlines() if line.startswith("error:"))
    assert sentence.startswith("error: KeyError: 'modle' (")
    assert "mine.py, line 6, in mix); `facade --debug ...` shows the way there" in sentence
    assert "Traceback" not in ended.stderr


def test_a_mistake_of_ours_is_one_sentence_with_the_line_that_made_it(command, monkeypatch):
    monkeypatch.setattr("facade.export.recommend.recommend", int)
    ended = command("recommend", "run", "--data", "npz")
    assert ended.code == 1
    assert "export.py, line " in ended.err
    assert ended.err.startswith("error: TypeError: ")


def test_no_file_where_the_user_is_stands_in_for_a_library(tmp_path):
    (tmp_path / "numpy.py").write_text("raise SystemExit('not the library')\n")
    (tmp_path / "mine.py").write_text("from facade.algorithms.el import EL\n\n\nclass Mine(EL):\n    pass\n")
    (tmp_path / "mine.toml").write_text(DIGITS)
    command = [sys.executable, "-c", "from facade.cli import main; main()", "run", "mine.toml", "--out", "run"]
    command += ["--set", "algorithm.name=mine:Mine"]
    safe = os.environ | {"PYTHONSAFEPATH": "1"}  # as for the installed command
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=safe)
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "run" / "result.json").exists()
