"""What a restarted node must know: whole, bounded, and without the log."""

import contextlib

import pytest

from facade import run
from facade.core import tree
from facade.peers.local_network import founded
from facade.peers.node.recovery import Recovery
from facade.peers.protocol.wire import Origin
from peers.makers import QUICK, logged, tiny
from peers.memory import KilledError, MemoryNetwork, kill_in_round, run_aside

LIST = b"l" * 32


def test_facts_are_there_after_a_restart(tmp_path):
    path = tmp_path / "recovery.jsonl"
    recovery = Recovery(path)
    origin = Origin(LIST, 2, 5)
    assert (recovery.begun, recovery.mixed(LIST, 5), set(recovery.farewells)) == (False, None, set())
    assert recovery.first_digest(origin, "aa") == "aa"
    recovery.note_heard(origin)
    recovery.note_mixed(LIST, 5, [0, 2])
    assert [recovery.note_farewell("h1"), recovery.note_farewell("h1")] == [True, False]
    again = Recovery(path)
    assert (again.begun, again.mixed(LIST, 5), set(again.farewells)) == (False, [0, 2], {"h1"})
    assert again.first_digest(origin, "bb") == "aa"
    again.commit(oldest=5)
    assert Recovery(path).begun


def test_old_rounds_are_dropped_so_that_the_file_stays_small(tmp_path):
    path = tmp_path / "recovery.jsonl"
    recovery, sizes = Recovery(path), []
    for round in range(200):
        for sender in range(4):
            recovery.first_digest(Origin(LIST, sender, round), "d" * 64)
            recovery.note_heard(Origin(LIST, sender, round))
        recovery.note_mixed(LIST, round, [0, 1, 2, 3])
        recovery.commit(round - 16)
        sizes.append(path.stat().st_size)
    assert max(sizes) < 1.1 * sizes[30]
    assert (recovery.mixed(LIST, 182), recovery.mixed(LIST, 183)) == (None, [0, 1, 2, 3])


def test_half_a_line_is_left_out_and_a_damaged_one_is_named(tmp_path):
    path = tmp_path / "recovery.jsonl"
    recovery = Recovery(path)
    for round in (5, 6):
        recovery.note_mixed(LIST, round, [round])
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    with pytest.warns(UserWarning, match=r"recovery.jsonl is cut off or damaged: line 2 is not used"):
        torn = Recovery(path)
    assert (torn.mixed(LIST, 5), torn.mixed(LIST, 6)) == ([5], None)
    torn.note_mixed(LIST, 7, [7])
    assert Recovery(path).mixed(LIST, 7) == [7]
    path.write_bytes(whole.replace(b"[5]", b"[4]"))
    with pytest.warns(UserWarning, match=r"recovery.jsonl is cut off or damaged: line 1 is not used"):
        damaged = Recovery(path)
    assert (damaged.mixed(LIST, 5), damaged.mixed(LIST, 6)) == (None, [6])


@pytest.mark.parametrize("log", ["deleted", "cut off"])
def test_without_its_log_a_killed_site_ends_with_the_same_bits(log, tmp_path):
    experiment = tiny('data.clusters="3:1"', "topology.degree=2", "training.rounds=8", "evaluation.every=8")
    network = MemoryNetwork()
    with founded(experiment, tmp_path, "patient", QUICK) as sites:
        *others, home = sites.homes
        nodes = [network.node(other) for other in others]
        victim = network.node(home)
        kill_in_round(victim, 5)
        ends = [run_aside(node) for node in nodes]
        assert isinstance(run_aside(victim)(), KilledError)
        victim.close()
        path = home / "run" / "log.jsonl"
        path.unlink() if log == "deleted" else path.write_bytes(path.read_bytes()[:100])
        newest = max((home / "run" / "checkpoints").glob("*.saved"))
        newest.write_bytes(newest.read_bytes()[:-1])  # so that a round must be mixed again from those heard before
        with pytest.warns(UserWarning, match="is damaged"):
            again = network.node(home)
        ends.append(run_aside(again))
        outcomes = [end() for end in ends]
        for node in [*nodes, again]:
            node.close()
    with (
        contextlib.nullcontext() if log == "deleted" else pytest.warns(UserWarning, match="cut off or damaged: line 1")
    ):
        events = logged(home, "committed")
    assert [event["round"] for event in events] == [4, 5, 6, 7, 8], "one round was played again"
    assert tree.joint([outcome.state_sha256 for outcome in outcomes]) == run(experiment).summary["state_sha256"]
