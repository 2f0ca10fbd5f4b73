import json
import os
import signal

import numpy as np
import pytest

from facade import run
from facade.peers.journal import lines
from facade.peers.membership import Limits
from facade.peers.outcome import Outcome
from facade.runtimes.local_network import Processes, founded
from peers.makers import QUICK, dies_at_line, slow, tiny


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


def waits(home):
    """Seconds between committing and mixing, by round."""
    from datetime import datetime

    begun, took = {}, {}
    for event in lines(home / "run" / "log.jsonl"):
        if event["event"] in ("committed", "mixed"):
            at = datetime.fromisoformat(event["time"]).timestamp()
            if event["event"] == "committed":
                begun[event["round"]] = at
            else:
                took[event["round"]] = at - begun[event["round"]]
    return took


def ledger_of(home):
    return json.loads((home / "run" / "site.json").read_text())["site"]["ledger"]


@pytest.mark.parametrize("trouble", ["dead", "stopped", "slow"])
def test_under_brisk_the_others_finish_and_name_the_one_in_trouble(trouble, tmp_path):
    experiment = tiny("training.rounds=10", "evaluation.every=10", "training.steps=1")
    limits = Limits(deadline=30, floor=3, grace=1, linger=3, window=4)
    with founded(experiment, tmp_path, "brisk", limits) as made:
        troubled, others = made.homes[3], [home for home in made.homes if home != made.homes[3]]
        with Processes(others) as processes:
            process = processes.start(troubled, slow, 3.0) if trouble == "slow" else processes.start(troubled)
            done = dict.fromkeys(made.homes, 0)
            for home, event in processes.events():
                assert "failed" not in event
                done[home] = max([done[home], *(row["round"] for row in event["rows"])])
                if home == troubled and trouble != "slow" and done[home] == 2 and process.is_alive():
                    os.kill(process.pid, signal.SIGKILL if trouble == "dead" else signal.SIGSTOP)
                if trouble == "stopped" and all(done[other] == 10 for other in others):
                    os.kill(process.pid, signal.SIGCONT)
            for home in others:
                processes.running[home].join()
                assert processes.running[home].exitcode == 0
    for home in others:
        entry = ledger_of(home)["n3"]
        assert entry["late"] + entry["missed"] > 0 or entry["heard"] >= 2
        misses, later = 0, []
        for event in lines(home / "run" / "log.jsonl"):
            if event["event"] == "mixed" and misses >= 2:
                later.append(waits(home)[event["round"]])
            misses += event["event"] == "mixed" and 3 not in event["heard"] and event["round"] < 10
        assert np.median(later or [0]) < 2.5
    assert any(ledger_of(home)["n3"]["late"] + ledger_of(home)["n3"]["missed"] > 0 for home in others)
    if trouble == "slow":
        assert any(event["event"] == "jumped" for event in lines(troubled / "run" / "log.jsonl"))
        assert Outcome.load(troubled / "run") is not None
