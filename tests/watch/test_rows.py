"""What rows say is what a JSON parser, and the summary of the run, say of them."""

import json
import math

import numpy as np
import pytest

from experiments import digits
from facade import run
from facade.algorithms import ALGORITHMS
from facade.core.algorithm import Algorithm
from facade.core.topology import TOPOLOGIES
from facade.experiment.setup import planned
from facade.runs.history import load
from facade.testing.contract import tiny
from facade.testing.driven import driven, prepared
from facade.watch.round_graph import HEAR_OTHERS, KEEP_THEIR_GRAPH, RoundGraph
from facade.watch.round_rows import RoundRows
from facade.watch.thinned import MOST, ThinnedLines
from facade.watch.watched_run import WatchedRun

SETTINGS = {
    "facade": (),
    "local": ("algorithm.name=local",),
    "offline": ("network.offline=0.4", "network.loss=0.2"),
    "attacked": ("attack.kind=sign-flip", "attack.nodes=[1]", "guard.rule=fair"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_the_pattern_finds_what_a_parser_finds(name, tmp_path):
    experiment = digits(*SETTINGS[name], clusters="3:1", degree=2, rounds=4, steps=2, every=2)
    run(experiment, tmp_path / "run")
    content = (tmp_path / "run" / "rows.jsonl").read_bytes()
    reader, rounds, tests = RoundRows(4, guarded=name == "attacked"), [], []
    for line in content.splitlines(keepends=True):  # one at a time: rounds come to be whole in between
        rounds += reader.rounds(line)
        tests += reader.evaluations(line)
    rows = [json.loads(line) for line in content.splitlines()]
    assert [[row["kind"] for row in test] for test in tests] == [["evaluation"] * 4] * 2 + [["final"] * 4]
    assert [row for test in tests for row in test] == [row for row in rows if row["kind"] != "round"]
    for round in rounds:
        parsed = [row for row in rows if row["kind"] == "round" and row["round"] == round.round]
        assert round.bytes == [row["bytes"] for row in parsed]
        losses = [math.nan if row["train_loss"] is None else row["train_loss"] for row in parsed]
        assert np.array_equal(round.losses, losses, equal_nan=True)
        assert round.choice == [row["choice"] for row in parsed if "choice" in row]
        dropped = {(row["node"], sender) for row in parsed for sender in row.get("dropped", []) if sender >= 0}
        assert set(round.dropped) == dropped
        assert round.closed == sum(row.get("gate_closed", False) for row in parsed)
    assert [round.round for round in rounds] == [1, 2, 3, 4]
    assert name != "attacked" or any(round.dropped for round in rounds)


def test_a_round_that_lacks_nodes_is_left_out():
    reader = RoundRows(2, guarded=False)
    row = '{"kind":"round","round":%d,"node":%d,"bytes":5,"train_loss":0.5}\n'
    content = "".join(row % at for at in [(1, 0), (1, 1), (2, 1), (3, 0), (3, 1), (4, 0)]).encode()
    assert [round.round for round in reader.rounds(content)] == [1, 3]
    assert [round.round for round in reader.rounds((row % (4, 1)).encode())] == [4]


def test_numbers_are_those_of_the_finished_run(tmp_path):
    experiment = digits("training.lr=0.1", clusters="3:1", degree=2, rounds=20, steps=5, every=10)
    summary = run(experiment, tmp_path / "one").summary
    watched = WatchedRun(tmp_path / "one", "one")
    watched.look()
    sections, history = watched.sections(), load(tmp_path / "one")
    assert [line["name"] for line in sections["quality"]["lines"]] == ["majority", "minority"]
    assert [line["final"] for line in sections["quality"]["lines"]] == pytest.approx(summary["clusters"], abs=1e-5)
    assert sections["quality"]["mean"] == pytest.approx(summary["all"], abs=1e-5)
    assert sections["quality"]["worst"] == pytest.approx(summary["worst_node"], abs=1e-5)
    assert sections["traffic"]["total"] == pytest.approx(summary["bytes_per_node"])
    assert sections["heads"]["columns"] == ["".join(map(str, choice)) for choice in history.choice.tolist()]
    assert sections["progress"] | {"seconds": 0, "written": 0} == {
        "phase": "finished", "says": "finished", "done": 20, "rounds": 20, "seconds": 0, "left": None, "written": 0,
    }  # fmt: skip


@pytest.mark.parametrize("settings", [(), ("topology.name=k-out",), ("network.loss=0.3", "network.offline=0.2")])
def test_the_graph_is_the_one_that_nodes_play_by(settings):
    setup = prepared(tiny("el", *settings))
    graphs = RoundGraph(setup.experiment.model_dump(), setup.federation.n)
    for round, posts in enumerate(driven(setup).posts[: setup.plan.rounds]):
        receiver, sender = graphs.edges(round)
        wanted = posts[0].wanted
        assert receiver.tolist() == wanted.receiver.tolist()
        assert sender.tolist() == wanted.sender.tolist()


def test_whose_graph_is_drawn_and_which_stays_is_known_of_every_algorithm():
    replaced = {name for name in ALGORITHMS if type(planned(tiny(name))[0]).wanted is not Algorithm.wanted}
    assert replaced == set(HEAR_OTHERS)
    assert {name for name in ALGORITHMS if not planned(tiny(name))[0].fresh} >= KEEP_THEIR_GRAPH
    for name in ALGORITHMS:
        experiment = tiny(name)
        assert RoundGraph(experiment.model_dump(), experiment.n)._fresh == planned(experiment)[1].fresh, name


def test_no_code_of_somebodys_own_is_run_for_a_picture():
    experiment = tiny("el").model_dump()
    for section, name in (("algorithm", "own:Mine"), ("topology", "own:Graph")):
        described = experiment | {section: experiment[section] | {"name": name}}
        assert "own:" in RoundGraph(described, 4).why_not
    assert all(RoundGraph(tiny("el", f"topology.name={name}").model_dump(), 8).why_not == ""
               for name in TOPOLOGIES if name != "edges")  # fmt: skip


def test_lines_keep_their_ends_and_means_when_they_are_thinned():
    lines = ThinnedLines()
    for round in range(1, 10 * MOST + 1):
        lines.add(round, [float(round), math.nan])
    plain = lines.plain()
    assert len(plain["rounds"]) <= MOST
    assert plain["rounds"][-1] == 10 * MOST
    spans = np.diff([0, *plain["rounds"]])
    assert np.average(plain["values"][0], weights=spans) == pytest.approx((10 * MOST + 1) / 2)
    assert set(plain["values"][1]) == {None}
