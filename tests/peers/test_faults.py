import os
import signal
import time
from collections import Counter

import numpy as np
import pytest

from facade import run
from facade.peers.journal import lines
from facade.peers.membership import Limits
from facade.peers.outcome import Outcome
from facade.peers.site import Site, set_up
from facade.runtimes.local_network import Processes, founded
from peers.makers import QUICK, dies_at_line, slow, tiny, until


def combined(homes):
    import hashlib

    parts = [Outcome.load(home / "run").state_sha256 for home in homes]
    return hashlib.sha256("".join(parts).encode()).hexdigest()


@pytest.mark.parametrize("seed", [1, 2])
def test_a_peer_killed_ten_times_at_random_lines_ends_with_the_fault_free_state(seed, tmp_path):
    experiment = tiny("training.rounds=12", "evaluation.every=12", "training.steps=1")
    moments = np.random.default_rng(seed).integers(1, 600, 10).tolist()
    with founded(experiment, tmp_path, "patient", QUICK) as made:
        victim, others = made.homes[3], [home for home in made.homes if home != made.homes[3]]
        with Processes(others) as processes:
            for moment in moments:
                process = processes.start(victim, dies_at_line, moment)
                process.join()
                assert process.exitcode == -signal.SIGKILL
            processes.start(victim)
            failures = [event for _, event in processes.events() if "failed" in event]
            assert not failures
            for process in processes.running.values():
                process.join()
                assert process.exitcode == 0
        assert combined(made.homes) == run(experiment).summary["state_sha256"]


def log(home, event):
    return [e for e in lines(home / "run" / "log.jsonl") if e["event"] == event]


def granted_to_suspects(home):
    """Seconds that a site's policy gave, once all others had come, to those who had missed twice before."""
    misses, granted = Counter(), []
    for event in lines(home / "run" / "log.jsonl"):
        if event["event"] == "heard":
            misses[event["peer"]] = 0
        elif event["event"] == "missed":
            if all(misses[peer] >= 2 for peer in event["peers"]):
                granted.append(event["granted"])
            misses.update(event["peers"])
    return granted


def rounds_without(home, troubled):
    """Rounds that a site mixed before a neighbour in trouble had published its message, if it ever did."""
    site = Site.load(home)
    membership = site.membership()
    setup = set_up(site, membership)
    me, other = membership.number(home.name), membership.number(troubled.name)
    published = {e["round"]: e["time"] for e in reversed(log(troubled, "committed"))}
    mixed = {e["round"]: e["time"] for e in log(home, "mixed") if e["round"] < setup.plan.rounds}
    early = [r for r, moment in mixed.items() if r not in published or published[r] > moment]
    graphs = [setup.plan.graph(r) for r in early]
    return [r for r, graph in zip(early, graphs, strict=True) if other in graph.sender[graph.receiver == me]]


def test_a_run_begins_when_everybody_has_started(tmp_path):
    experiment = tiny('data.clusters="3:1"', "topology.degree=2", "training.rounds=2", "evaluation.every=2")
    with founded(experiment, tmp_path, "brisk", QUICK) as made, Processes(made.homes[:3]) as processes:
        until(lambda: all(log(home, "started") for home in made.homes[:3]))
        processes.start(made.homes[3])
        assert not [event for _, event in processes.events() if "failed" in event]
    began = log(made.homes[3], "started")[0]["time"]
    assert all(log(home, "committed")[0]["time"] > began for home in made.homes[:3])


STOPPED_SECONDS = 30
ROUNDS = {"dead": 12, "stopped": 60, "slow": 12}
"""Every round costs those about a second who wait for the stopped one: after 60, 30 s are long over."""


def run_with_trouble(trouble, made, processes):
    """Play a network to the end, in which one of the peers gets into trouble after two rounds."""
    troubled = made.homes[3]
    process = processes.start(troubled, slow, 10) if trouble == "slow" else processes.start(troubled)
    done, stopped = dict.fromkeys(made.homes, 0), None
    for home, event in processes.events():
        assert "failed" not in event
        done[home] = max([done[home], *(row["round"] for row in event.get("rows", ()))])
        if trouble != "slow" and stopped is None and done[troubled] >= 2:
            os.kill(process.pid, signal.SIGKILL if trouble == "dead" else signal.SIGSTOP)
            stopped = time.monotonic()
        if trouble == "stopped" and stopped and time.monotonic() > stopped + STOPPED_SECONDS:
            os.kill(process.pid, signal.SIGCONT)
            assert max(done.values()) < ROUNDS["stopped"]
            stopped = float("inf")
    for process in processes.running.values():
        process.join()
    assert trouble != "stopped" or stopped == float("inf")


@pytest.mark.parametrize("trouble", ["dead", "stopped", "slow"])
def test_under_brisk_the_others_finish_wait_a_second_and_name_the_one_in_trouble(trouble, tmp_path):
    rounds = ROUNDS[trouble]
    experiment = tiny(f"training.rounds={rounds}", f"evaluation.every={rounds}", "training.steps=1")
    limits = Limits(deadline=60, floor=5, grace=1, linger=3, window=4)
    with founded(experiment, tmp_path, "brisk", limits) as made:
        troubled, others = made.homes[3], [home for home in made.homes if home != made.homes[3]]
        with Processes(others) as processes:
            run_with_trouble(trouble, made, processes)
            assert all(processes.running[home].exitcode == 0 for home in others)
    granted = [seconds for home in others for seconds in granted_to_suspects(home)]
    assert granted
    assert max(granted) <= limits.grace + 1e-6  # what the policy decided: a busy machine may add to it, not the code
    for home in others:
        without = rounds_without(home, troubled)
        entry = Outcome.load(home / "run").ledger["n3"]
        assert without
        assert entry["late"] + entry["missed"] >= len(without)
        assert max(e["granted"] for e in log(home, "missed")) < limits.deadline / 2  # in the first round, too
    if trouble != "dead":
        assert Outcome.load(troubled / "run") is not None
    if trouble == "stopped":
        assert log(troubled, "jumped")
