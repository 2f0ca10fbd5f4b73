import os
import signal
from collections import Counter

import numpy as np
import pytest

from facade import run
from facade.peers.after.outcome import Outcome
from facade.peers.local_network import Processes, founded
from facade.peers.node.journal import lines
from facade.peers.trust.membership import Limits
from facade.peers.trust.site import Site, set_up
from peers.makers import QUICK, audited, dies_at_line, logged, pauses, slow, tiny, until


def combined(homes):
    import hashlib

    parts = [Outcome.load(home / "run").state_sha256 for home in homes]
    return hashlib.sha256("".join(parts).encode()).hexdigest()


def test_a_peer_killed_ten_times_at_random_lines_ends_with_the_fault_free_state(kill_seed, tmp_path):
    experiment = tiny("training.rounds=12", "evaluation.every=12", "training.steps=1")
    moments = np.random.default_rng(kill_seed).integers(1, 600, 10).tolist()
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
        assert audited(made.homes) == []


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
    published = {e["round"]: e["time"] for e in reversed(logged(troubled, "committed"))}
    mixed = {e["round"]: e["time"] for e in logged(home, "mixed") if e["round"] < setup.plan.rounds}
    early = [r for r, moment in mixed.items() if r not in published or published[r] > moment]
    graphs = [setup.plan.graph(r) for r in early]
    return [r for r, graph in zip(early, graphs, strict=True) if other in graph.sender[graph.receiver == me]]


def test_a_run_begins_when_everybody_has_started(tmp_path):
    experiment = tiny('data.clusters="3:1"', "topology.degree=2", "training.rounds=2", "evaluation.every=2")
    with founded(experiment, tmp_path, "brisk", QUICK) as made, Processes(made.homes[:3]) as processes:
        until(lambda: all(logged(home, "started") for home in made.homes[:3]))
        processes.start(made.homes[3])
        assert not [event for _, event in processes.events() if "failed" in event]
    began = logged(made.homes[3], "started")[0]["time"]
    assert all(logged(home, "committed")[0]["time"] > began for home in made.homes[:3])


LIMITS = Limits(deadline=60, floor=5, grace=0.3, linger=3, window=4)
BEGINS, GOES_ON, ROUNDS = 3, 10, 14
"""Rounds: in which one gets into trouble, in which the others are when one that was stopped goes on, and all."""


def run_with_trouble(trouble, made, processes):
    """Play a network to the end, in which one of the peers gets into trouble. One that is stopped goes on when no
    other keeps the messages that it needs, and the others go on when it has noticed."""
    troubled, others = made.homes[3], [home for home in made.homes if home != made.homes[3]]
    for home in others:
        processes.start(home, *((pauses, [GOES_ON]) if trouble == "stopped" else ()))
    if trouble == "slow":
        processes.start(troubled, slow, [str(home) for home in others])
    else:
        process = processes.start(troubled, pauses, [BEGINS])
        until((troubled / f"waits-{BEGINS}").exists)
        os.kill(process.pid, signal.SIGKILL if trouble == "dead" else signal.SIGSTOP)
    if trouble == "stopped":
        (troubled / f"go-{BEGINS}").touch()
        until(lambda: all((home / f"waits-{GOES_ON}").exists() for home in others))
        os.kill(process.pid, signal.SIGCONT)
        until(lambda: logged(troubled, "jumped"))
        for home in others:
            (home / f"go-{GOES_ON}").touch()
    assert not [event for _, event in processes.events() if "failed" in event]


@pytest.mark.parametrize("trouble", ["dead", "stopped", "slow"])
def test_under_brisk_the_others_finish_wait_a_moment_and_name_the_one_in_trouble(trouble, tmp_path):
    experiment = tiny(f"training.rounds={ROUNDS}", f"evaluation.every={ROUNDS}", "training.steps=1")
    with founded(experiment, tmp_path, "brisk", LIMITS) as made:
        troubled, others = made.homes[3], [home for home in made.homes if home != made.homes[3]]
        with Processes([]) as processes:
            run_with_trouble(trouble, made, processes)
            assert all(processes.running[home].exitcode == 0 for home in others)
    granted = [seconds for home in others for seconds in granted_to_suspects(home)]
    assert granted
    assert max(granted) < LIMITS.floor  # what the policy decided: a busy machine may add to it, not the code
    for home in others:
        without = rounds_without(home, troubled)
        entry = Outcome.load(home / "run").ledger["n3"]
        assert without
        assert entry["late"] + entry["missed"] >= len(without)
        assert max(e["granted"] for e in logged(home, "missed")) < LIMITS.deadline / 2  # in the first round, too
    assert audited(made.homes) == []
    if trouble != "dead":
        assert Outcome.load(troubled / "run") is not None
    if trouble == "stopped":
        assert logged(troubled, "jumped")
