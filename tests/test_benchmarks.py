"""That the benchmarks measure what they say; how fast anything is, is not asserted."""

import json

import pytest
from torch import nn

from facade.benchmarks import (
    edges,
    efficiency,
    evaluation,
    guarding,
    large,
    large_models,
    many_rows,
    overhead,
    scaling,
    wire,
)
from facade.benchmarks.bare import BareLoop
from facade.benchmarks.rounds import CIFAR, Rounds, federation, images, pairwise, prepared
from facade.cli import bench as command

SMALL = (1, 8, 8)


def test_the_overhead_of_heads_is_counted_for_every_k(monkeypatch):
    monkeypatch.setattr(overhead, "CASES", {"mlp": (SMALL, 10)})
    costs = overhead.run(quick=True)["overhead"]["mlp"]
    assert list(costs) == ["k=1", "k=2", "k=3", "k=5"]
    assert costs["k=1"]["state_bytes"] == pytest.approx(1, abs=0.01)
    assert costs["k=5"]["state_bytes"] > costs["k=2"]["state_bytes"] > 1
    assert {k["message_bytes"] for k in costs.values()} == {8}, "a choice, whatever the number of heads"


def test_a_guarded_round_is_measured_against_an_unguarded_one(monkeypatch):
    monkeypatch.setattr(guarding, "MODEL", "mlp")
    monkeypatch.setattr(guarding, "SHAPE", SMALL)
    cost = guarding.run(quick=True)["guard"]
    assert cost["guarded_over_unguarded"]["median"] > 0
    assert cost["guarded_seconds"] > 0


def test_messages_between_real_sites_are_measured_against_plain_tls(monkeypatch):
    monkeypatch.setattr(wire, "MESSAGE", 400_000)
    monkeypatch.setattr(wire, "MODEL", "mlp")
    cost = wire.run(quick=True)["wire"]
    assert cost["message_bytes"] == 400_000
    assert min(cost["plain_over_ours"]["q1"], cost["plain_over_ours_cpu"]["q1"]) > 0
    assert cost["peak_in_messages"] >= 2, "two messages of others"
    assert cost["whole_rounds"]["round_seconds"] > 0


def test_rounds_advance_a_real_run():
    game = Rounds(prepared(federation(SMALL, 6, 20), "mlp", {"name": "el"}))
    before = game.state.model["head.weight"].clone()
    game.advance(2)
    assert not game.state.model["head.weight"].equal(before)


def test_pairs_take_turns_in_going_first():
    calls = []
    ratios, mine, theirs = pairwise(lambda: calls.append("ours"), lambda: calls.append("bare"), 3)
    assert calls == ["bare", "ours", "ours", "bare", "bare", "ours"]
    assert ratios["q1"] <= ratios["median"] <= ratios["q3"]
    assert mine > 0
    assert theirs > 0


def test_the_bare_loop_trains():
    module = efficiency._module()
    loop, drawn = BareLoop(module, 1), images(CIFAR, 16)
    loop.train(drawn.x.float().div(255).view(2, 8, *CIFAR), drawn.y.view(2, 8), nodes=1, steps=2)
    trained = next(iter(loop._modules[0].parameters()))
    assert not trained.equal(next(iter(module.parameters())))
    loop.pool.shutdown()


def test_the_full_run_is_extrapolated_from_rounds_and_evaluations():
    rounds = {"facade": {"round_seconds": 2.0, "bare_seconds": 1.8}}
    times = efficiency.full_run(rounds, {"evaluation_seconds": 60.0, "bare_seconds": 54.0}, rate=715)
    assert times["minutes"] == (1200 * 2 + 15 * 60) / 60
    assert times["bare_over_ours"] == pytest.approx(0.9)
    assert times["minutes_at_1430_bare_samples_per_second"] == times["minutes"] / 2


def test_numbers_are_on_the_disk_before_the_next_part_begins(tmp_path, monkeypatch, capsys):
    def fails(quick):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(
        "facade.benchmarks.parts", lambda runtime, rows: {"one": lambda quick: {"ratio": 0.9}, "two": fails}
    )
    with pytest.raises(RuntimeError):
        command.bench(out_file=tmp_path / "numbers.json", quick=True)
    assert json.loads((tmp_path / "numbers.json").read_text())["ratio"] == 0.9
    assert "ratio" in capsys.readouterr().out


def test_for_programs_the_numbers_are_one_line_of_json(monkeypatch, capsys):
    monkeypatch.setattr("facade.benchmarks.parts", lambda runtime, rows: {"one": lambda quick: {"ratio": 0.9}})
    command.bench(quick=True, as_json=True)
    printed = capsys.readouterr()
    assert json.loads(printed.out)["ratio"] == 0.9
    assert "0.9" in printed.err


def test_recording_and_reading_rows_are_measured_against_the_run():
    cost = many_rows.measured("el", 6, 4)
    assert cost["rows"] == 24
    assert 0 < cost["recording_share"] < 1
    for part in ("end", "show", "report", "read_rows"):
        assert cost[f"{part}_over_run"] == pytest.approx(cost[f"{part}_seconds"] / cost["run_seconds"], abs=0.2)


@pytest.mark.parametrize(("threads", "nodes"), [(1, 32), (12, 32), (64, 32), (3, 8)])
def test_the_bare_loop_leaves_no_node_out(threads, nodes):
    assert sum(BareLoop(nn.Linear(1, 1), threads)._shares(nodes)) == nodes


def test_many_small_nodes_are_counted(capsys):
    numbers = {}
    for name in ("el", "facade"):
        scaling.print_scale(32, name)
        numbers[name] = json.loads(capsys.readouterr().out)
    assert numbers["facade"]["message_bytes"] == numbers["el"]["message_bytes"] + 8
    assert all(0 < sum(each["phases"].values()) <= 1 for each in numbers.values())
    assert all(each["peak_over_states_and_data"] >= each["rss_over_states_and_data"] for each in numbers.values())


def test_the_rounds_and_the_memory_of_large_models_are_measured(monkeypatch, capsys):
    monkeypatch.setattr(large, "CASES", {"small": large.Case("mlp", SMALL, 6)})
    assert large.efficiency("small", 2)["median"] > 0
    large.print_peak("small")
    assert json.loads(capsys.readouterr().out)["peak_over_states"] > 0


def test_large_models_are_as_large_as_they_say():
    weights = {
        model.__name__: sum(weight.numel() for weight in model().parameters())
        for model in (large_models.Perceptron, large_models.Transformer, large_models.ResNet18)
    }
    assert weights == {"Perceptron": 10_168_010, "Transformer": 10_669_450, "ResNet18": 11_181_642}


def test_evaluations_are_measured_against_bare_forward_passes(monkeypatch):
    monkeypatch.setattr(evaluation, "CASES", {"small": evaluation.Case("mlp", SMALL, 50)})
    measured = evaluation.run(quick=True)["evaluation_of"]["small"]
    assert measured["median"] > 0
    assert measured["milliseconds_per_sample"] > 0


def test_rounds_with_many_edges_are_measured_against_rounds_with_few():
    measured = edges.run(quick=True)["edges"]["100"]
    assert set(measured["microseconds_per_node_round"]) == {"4", "64"}
    assert 0 < measured["mixing_and_topology_of_many"] < 1
