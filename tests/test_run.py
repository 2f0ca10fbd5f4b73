"""`facade.run`: what it takes, what it shows, and its result as a table."""

import io
import re
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from experiments import digits, written
from facade import ExperimentError, Result, run
from facade.runtimes import bar


def tiny(*settings):
    return digits(*settings, clusters="3:1", degree=2, rounds=4, steps=1, every=2)


@pytest.fixture
def terminal(monkeypatch):
    """What a terminal shows, if standard error is one."""
    shown = io.StringIO()
    monkeypatch.setattr(
        bar, "Console", lambda **_: Console(file=shown, width=100, force_terminal=True, color_system=None)
    )
    return shown


def test_an_experiment_may_be_given_in_three_ways(tmp_path):
    experiment = tiny()
    file = written(experiment, tmp_path / "e.toml")
    hashes = {run(way).summary["model_sha256"] for way in (experiment, file, str(file), experiment.model_dump())}
    assert len(hashes) == 1


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (7, "a int is no experiment; give an Experiment, the path of a TOML file, or nested dicts"),
        ("nowhere.toml", "nowhere.toml cannot be read: No such file"),
        ({"data": {"source": "digits"}}, "data.clusters is required"),
    ],
)
def test_what_is_no_experiment_costs_one_sentence(given, says):
    with pytest.raises(ExperimentError, match=re.escape(says)):
        run(given)


def test_a_terminal_shows_how_far_a_run_is_and_how_good(terminal):
    result = run(tiny("training.lr=20"))
    last = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue()).splitlines()[-1]
    shares = " ".join(f"{100 * share:.1f}" for share in result.summary["clusters"])
    assert re.search(rf"facade .+ 4/4 {shares} % 0:00:\d\d", last), last
    assert "The training loss never fell" in terminal.getvalue()


def test_nothing_is_shown_where_it_is_not_wanted(terminal):
    run(tiny(), progress=False)
    assert terminal.getvalue() == ""


def test_nothing_is_shown_where_nobody_would_see_it(capfd):
    run(tiny())
    assert capfd.readouterr() == ("", "")
    with bar.shown_bar(Console(file=io.StringIO(), force_jupyter=False)) as shown:
        assert shown is None


def test_a_run_that_fails_leaves_no_bar_behind(terminal):
    with pytest.raises(ExperimentError, match="more than the 4 nodes"):
        run(tiny("runtime.shards=9"))
    run(tiny())
    assert "4/4" in terminal.getvalue()


def test_a_result_is_a_table_with_one_row_per_node_and_evaluation(tmp_path):
    pandas = pytest.importorskip("pandas")
    result = run(tiny("data.validation=0.2"), tmp_path / "run")
    frame = result.frame()
    assert list(frame.columns) == [
        "algorithm", "seed", "round", "final", "node", "cluster", "accuracy", "loss", "choice", "validation_accuracy",
        "validation_loss",
    ]  # fmt: skip
    assert len(frame) == 4 * (2 + 1), "rounds 2 and 4, and after the final exchange"
    by_cluster = frame[frame.final].groupby("cluster").accuracy.mean()
    assert by_cluster.tolist() == pytest.approx(result.summary["clusters"])
    pandas.testing.assert_frame_equal(Result.load(tmp_path / "run").frame(), frame)


def test_a_table_without_pandas_costs_one_sentence(monkeypatch):
    result = run(tiny())
    monkeypatch.setattr("facade.errors.find_spec", lambda name: None)
    with pytest.raises(ExperimentError, match=r"a DataFrame needs an extra: pip install 'facade-dl\[pandas\]'"):
        result.frame()


def test_clusters_are_those_of_the_federation_and_not_of_its_order(tmp_path):
    from facade import Federation

    random = np.random.default_rng(0)
    nodes = [(x := random.normal(size=(20, 3)), (x[:, 0] > 0).astype(int), x, (x[:, 0] > 0).astype(int)) for _ in "abc"]
    federation = Federation.from_nodes(nodes, clusters=[1, 0, 1])
    training = {"rounds": 1, "steps": 1}
    described = {"data": federation.section, "topology": {"degree": 2}, "training": training} | {
        "algorithm": {"name": "el"}
    }
    result = run(described, Path(tmp_path / "run"), federation=federation)
    assert result.cluster.tolist() == Result.load(tmp_path / "run").cluster.tolist() == [1, 0, 1]
