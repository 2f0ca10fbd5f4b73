"""A page follows what goes on: a run, a sweep, one that is begun again, one that is resumed; and it leaves no trace."""

import json
import shutil
import subprocess
import sys

import pytest

from experiments import digits, written
from facade import run
from facade.errors import StoppedError
from facade.runs.stop_signals import StopSignals
from facade.runtimes import local
from facade.watch import watching
from facade.watch.watched_run import WatchedRun
from watch.watched import Stream, everything_below, running, served


def tiny(*settings, rounds=40, **algorithm):
    return digits("training.lr=0.1", *settings, clusters="3:1", degree=2, rounds=rounds, steps=2, every=5, **algorithm)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Looks follow each other at once, so that tests need not wait for them."""
    monkeypatch.setattr(watching, "SOONEST", 0.01)
    monkeypatch.setattr(watching, "LATEST", 0.02)
    monkeypatch.setattr(watching, "_QUIET", 0.05)


def test_a_run_is_followed_round_by_round_to_its_end(tmp_path):
    (tmp_path / "runs").mkdir()
    with served(tmp_path / "runs") as server:
        stream = Stream(server)
        with running(tiny(), tmp_path / "runs" / "one") as paced:
            paced.go_to(1)
            first = stream.until_round(1)
            assert first["progress"]["phase"] == "running"
            assert first["graph"]["round"] == 1
            assert len(first["graph"]["edges"]) == 8
            paced.go_to(12)
            seen = stream.until_round(12)
            assert seen["quality"]["lines"][0]["rounds"] == [5, 10]
            assert len(seen["heads"]["columns"]) == 12
            assert seen["progress"]["left"] > 0
        last = stream.until(lambda stream: stream.only()["progress"]["phase"] == "finished" and stream.only())
        summary = json.loads((tmp_path / "runs" / "one" / "result.json").read_text())
        assert [line["final"] for line in last["quality"]["lines"]] == pytest.approx(summary["clusters"], abs=1e-5)
        late = Stream(server)
        assert late.until_round(40) == last, "who comes later gets the same"
        late.close()
        stream.close()


def test_what_is_sent_is_what_has_changed(tmp_path):
    with running(tiny(), tmp_path / "one") as paced, served(tmp_path) as server:
        paced.go_to(20)
        stream = Stream(server)
        stream.until_round(20)
        whole = stream.sizes[0]
        paced.go_to(21)
        stream.until_round(21)
        assert stream.sizes[-1] < whole
        stream.close()


def test_a_sweep_is_followed_as_its_runs_begin(tmp_path):
    sweep = [sys.executable, "-m", "facade", "sweep", written(tiny(rounds=10), tmp_path / "tiny.toml")]
    (tmp_path / "out").mkdir()
    with served(tmp_path / "out") as server:
        stream = Stream(server)
        started = subprocess.Popen(
            [*sweep, "--grid", "algorithm.name=facade,el", "--seeds", "1,2", "--out", tmp_path / "out"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        stream.until(
            lambda stream: (
                len(stream.order) == 4
                and all(of.get("progress", {}).get("phase") == "finished" for of in stream.subjects.values())
            )
        )
        assert started.wait() == 0
        assert {of["progress"]["done"] for of in stream.subjects.values()} == {10}
        assert sum("heads" in of for of in stream.subjects.values()) == 2
        shutil.rmtree(stream.order[0])
        stream.until(lambda stream: len(stream.order) == 3)
        stream.close()


def test_a_run_that_is_begun_again_is_another(tmp_path):
    path = tmp_path / "one"
    with served(tmp_path) as server:
        stream = Stream(server)
        run(tiny(rounds=10), path)
        stream.until_round(10)
        shutil.rmtree(path)
        stream.until(lambda stream: not stream.order)
        with running(tiny("algorithm.name=el", rounds=8), path) as paced:
            paced.go_to(3)
            seen = stream.until(lambda stream: stream.only().get("progress", {}).get("done") == 3 and stream.only())
            assert seen["progress"]["rounds"] == 8
            assert "heads" not in seen
            assert seen["quality"]["lines"] == []
        stream.close()


class StopsAt(StopSignals):
    """Asks a run to stop after a while."""

    def __init__(self, calls):
        super().__init__()
        self._calls = calls

    @property
    def received(self):
        self._calls -= 1
        return 15 if self._calls < 0 else None

    @received.setter
    def received(self, value):
        pass


def test_a_resumed_run_comes_to_the_same_as_one_that_was_never_stopped(tmp_path):
    path = tmp_path / "one"
    watched = WatchedRun(path, "one")
    assert watched.sections()["progress"]["phase"] == "waiting"
    with pytest.raises(StoppedError):
        local.run(tiny(), path, stop_signals=StopsAt(30))
    watched.look()
    stopped = watched.sections()["progress"]["done"]
    assert 0 < stopped < 40
    with (path / "rows.jsonl").open("ab") as rows:
        rows.write(b'{"kind":"round","round":%d,"node":0,"bytes":1,"tr' % (stopped + 1))  # as a crash leaves it
    watched.look()
    assert watched.sections()["progress"]["done"] == stopped
    run(tiny(), path, resume=True)
    watched.look()
    fresh = WatchedRun(path, "one")
    fresh.look()
    ignored = {"progress": None}
    assert watched.sections() | ignored == fresh.sections() | ignored
    assert watched.sections()["progress"]["done"] == 40


def test_watching_leaves_no_trace(tmp_path):
    run(tiny(rounds=10), tmp_path / "one")
    before = everything_below(tmp_path)
    with served(tmp_path / "one") as server:
        stream = Stream(server)
        stream.until_round(10)
        stream.close()
    assert everything_below(tmp_path) == before


def test_nobody_asks_and_nothing_is_read(tmp_path, monkeypatch):
    run(tiny(rounds=5), tmp_path / "one")
    looks = []
    look = WatchedRun.look
    monkeypatch.setattr(WatchedRun, "look", lambda self: looks.append(self) or look(self))
    with served(tmp_path / "one") as server:
        server.service_actions()
        assert not looks
        stream = Stream(server)
        stream.until_round(5)
        assert looks
        stream.close()


def test_browsers_get_the_last_word_when_the_server_stops(tmp_path):
    with running(tiny(rounds=10), tmp_path / "one") as paced:
        paced.go_to(2)
        with served(tmp_path) as server:
            stream = Stream(server)
            stream.until_round(2)
            paced.go_to(6)
        names = []
        while (name := stream.next()) is not None:
            names.append(name)
        assert names[-1] == "over"
        assert stream.only()["progress"]["done"] == 6
        stream.close()


def test_a_thousand_nodes_are_sent_as_groups(tmp_path):
    from report.conftest import write_large_run

    write_large_run(tmp_path / "large", "facade", 1000, 60, 60)
    watched = WatchedRun(tmp_path / "large", "large")
    while watched.look().more:
        pass
    sections = watched.sections()
    assert len(json.dumps(sections)) < 20_000
    assert sections["graph"]["sizes"] == [940, 60]
    assert sum(sections["graph"]["between"][0]) == pytest.approx(2, abs=0.02)
    last = [[head[-1] for head in group["values"]] for group in sections["heads"]["shares"]]
    assert last == [[1.0, 0.0], [0.0, 1.0]]
    assert "nodes" not in sections["quality"]
