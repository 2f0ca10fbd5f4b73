"""Real sites, over TLS on this machine, followed while they run."""

import copy
import json
import shutil

import pytest

from experiments import digits
from facade.peers.local_network import Processes, founded, site_process
from facade.peers.trust.membership import Limits
from facade.watch import watching
from facade.watch.places import Places
from facade.watch.watched_network import WatchedNetwork
from facade.watch.watching import Watching
from watch.watched import Stream, everything_below, served

ROUNDS = 12


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(watching, "SOONEST", 0.01)
    monkeypatch.setattr(watching, "LATEST", 0.02)
    monkeypatch.setattr(watching, "_QUIET", 0.05)


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """Four sites that have played to the end while a page watched: their directory, and what the stream came to."""
    base = tmp_path_factory.mktemp("network") / "four"
    settings = ("training.lr=0.1", "guard.rule=fair")
    experiment = digits(*settings, clusters="3:1", degree=2, rounds=ROUNDS, steps=2, every=4)
    with founded(experiment, base / "sites", "patient", Limits(linger=10)) as made, served(base) as server:
        stream = Stream(server)
        assert set(stream.until(states)) == {"has not begun"}
        with Processes(made.homes[:3]) as processes:
            waiting = stream.until(lambda stream: "n3" in states(stream)[0] and states(stream)[0])
            processes.start(made.homes[3], site_process)
            seen = copy.deepcopy(stream.until_round(4))  # the stream goes on changing it
            ended = [event["ended"] for _, event in processes.events() if "ended" in event]
        last = stream.until(lambda stream: stream.only()["progress"]["phase"] == "finished" and stream.only())
        stream.close()
    assert ended == [0] * 4
    return base, {"waiting": waiting, "seen": seen, "last": last}


def states(stream):
    """What the sites are doing."""
    return [row["state"] for row in stream.only().get("sites", {"rows": []})["rows"]]


def test_a_network_is_followed_from_before_its_first_round_to_its_end(network):
    base, told = network
    assert told["waiting"].startswith("waits for")
    assert told["seen"]["progress"]["phase"] in ("running", "finished")
    assert 8 <= len(told["seen"]["graph"]["edges"]) <= 12, "two a site, or all three in the final exchange"
    last = told["last"]
    outcomes = [json.loads((base / f"sites/n{i}/run/site.json").read_text())["site"] for i in range(4)]
    for row, line, outcome in zip(last["sites"]["rows"], last["quality"]["lines"], outcomes, strict=True):
        confusion = outcome["final"]["confusion"]
        accuracy = sum(of[i] for i, of in enumerate(confusion)) / sum(map(sum, confusion))
        assert row["value"] == line["final"] == pytest.approx(accuracy, abs=1e-5)
        assert row["heard"] == sum(met["heard"] for met in outcome["ledger"].values())
        assert row["head"] == outcome["final"]["choice"]
        assert (row["done"], row["missed"], row["state"][:8]) == (ROUNDS, 0, "finished")
    assert len(last["heads"]["columns"]) == ROUNDS
    assert len(last["graph"]["edges"]) == 12, "the final exchange is with everybody"
    assert last["guard"]["rule"] == "fair"
    assert {"started", "finished"} <= {row["says"].split()[-1] for row in last["events"]["rows"]}


def test_one_site_shows_itself_and_what_others_have_signed(network, tmp_path):
    base, _ = network
    home = base / "sites/n0"
    others = [base / f"sites/n{i}/run/site.json" for i in (1, 2)]
    forged = tmp_path / "forged.json"
    forged.write_text(others[1].read_text().replace('"policy": "patient"', '"policy": "brisk"'))
    before = everything_below(home)
    (subject,) = Places([home, *others, forged]).subjects()
    while subject.look().more:
        pass
    rows = subject.sections()["sites"]["rows"]
    assert [row["id"] for row in rows] == ["n0", "n1", "n2", "forged.json"]
    assert [row.get("refusal", False) for row in rows] == [False, False, False, True]
    assert "was changed after it was signed" in rows[3]["state"]
    assert set(rows[0]["peers"]) == {"n1", "n2", "n3"}
    assert rows[1]["value"] > 0
    assert everything_below(home) == before


def test_studies_of_one_site_stand_side_by_side(network, tmp_path):
    base, _ = network
    home = tmp_path / "home"
    for study in ("heart", "lung"):
        shutil.copytree(base / "sites/n1/run", home / "studies" / study / "run")
        shutil.copy(base / "sites/n1/membership.json", home / "studies" / study)
    shutil.copy(base / "sites/n1/node.toml", home)
    subjects = Places([home]).subjects()
    assert [str(subject.path.relative_to(home)) for subject in subjects] == ["studies/heart", "studies/lung"]
    subjects[0].look()
    assert subjects[0].sections()["sites"]["rows"][0]["id"] == "n1"
    shutil.copy(base / "sites/n1/membership.json", home)
    assert len(Places([home]).subjects()) == 3


def test_a_log_that_is_cut_or_torn_and_a_site_that_goes_back_are_followed(network, tmp_path):
    base, _ = network
    home = tmp_path / "n0"
    shutil.copytree(base / "sites/n0", home)
    log, rows = home / "run/log.jsonl", home / "run/rows.jsonl"
    lines, whole = log.read_bytes().splitlines(keepends=True), rows.read_bytes()
    log.write_bytes(b"".join(lines[:20]) + lines[20][:30])
    rows.write_bytes(b"".join(whole.splitlines(keepends=True)[:5]) + b'{"kind":"rou')
    network = WatchedNetwork(home, "n0", [home])
    network.look()
    assert network.sections()["progress"]["done"] == 4
    log.write_bytes(b"".join(lines))
    rows.write_bytes(whole)
    network.look()
    assert network.sections()["progress"]["done"] == ROUNDS
    log.write_bytes(b"")  # rotated, by copytruncate
    rows.write_bytes(b"".join(whole.splitlines(keepends=True)[:3]))  # as a rollback leaves it
    network.look()
    assert network.sections()["progress"]["done"] == 3
    assert network.sections()["quality"]["lines"][0]["final"] is None
    log.write_bytes(b"not json\n" + lines[1][:-4] + b"\n" + lines[1])
    assert network.look().changed


def test_names_in_a_log_that_is_not_what_it_should_be_do_no_harm(network, tmp_path):
    base, _ = network
    home = tmp_path / "n0"
    shutil.copytree(base / "sites/n0", home)
    events = [{"event": "missed"}, {"event": "paused"}, {"event": "heard", "round": "x"}, {"event": 5}]
    events.append({"event": "judged", "dropped": 1})
    (home / "run/log.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    (home / "membership.json").write_text("[]")
    shutil.rmtree(home / "run/epochs")
    (home / "run/status.json").write_text("{")
    told = Watching(Places([home])).changes(0)
    assert "n0" in told.content


def test_where_a_site_is_follows_from_its_log(network, tmp_path):
    base, _ = network
    home = tmp_path / "n0"
    shutil.copytree(base / "sites/n0", home)
    lines = (home / "run/log.jsonl").read_bytes().splitlines(keepends=True)
    network, states = WatchedNetwork(home, "n0", [home]), []
    (home / "run/log.jsonl").write_bytes(b"")
    for line in lines[:9]:
        with (home / "run/log.jsonl").open("ab") as log:
            log.write(line)
        network.look()
        name, state = json.loads(line)["event"], network.sections()["sites"]["rows"][0]["state"]
        states.append((name, state.split()[0]))
    assert ("committed", "waits") in states
    assert ("mixed", "trains") in states
