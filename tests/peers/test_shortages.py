"""Sites that run out of open files, disk space or memory for a while: they pause, and come to the same end."""

import errno
import os
import signal
from pathlib import Path

import pytest

from facade import run
from facade.cli.site_lines import SiteLines
from facade.core import tree
from facade.errors import StorageError
from facade.files import store
from facade.files.shortage import shortage
from facade.learning.learner import Learner
from facade.peers.local_network import Processes, founded
from facade.peers.node import shortages
from facade.peers.node.journal import Journal, Metrics, lines
from facade.peers.node.shortages import Shortages, read_notice
from facade.peers.protocol.headers import Kind, Request, Status
from facade.peers.protocol.refusals import Reason
from facade.peers.protocol.wire import MessageForm
from peers.makers import QUICK, audited, federation, gate, leaves_on_sigterm, logged, tiny, until
from peers.memory import opened, run_all
from peers.test_in_memory import FOUR, rows_of


def failing(act, error, fails):
    """A function that raises an error instead of acting, whenever `fails` says so of the number of a call."""
    calls = iter(range(10**9))

    def scarce(*given, **named):
        if fails(next(calls)):
            raise error
        return act(*given, **named)

    return scarce


def lacking(code):
    return OSError(code, os.strerror(code))


def of_the_store(code):
    made = StorageError("it could not be written")
    made.__cause__ = lacking(code)
    return made


def out_of_memory():
    return RuntimeError("[enforce fail at alloc_cpu.cpp:1] DefaultCPUAllocator: can't allocate memory")


def ends_as_simulated(tmp_path):
    """Run four sites in memory to the state, the rows and a log that fits, of the simulator; their homes."""
    experiment = tiny(*FOUR, "training.rounds=4", "evaluation.every=2", "training.steps=1")
    with founded(experiment, tmp_path, "patient", QUICK) as sites, opened(sites.homes) as nodes:
        outcomes = run_all(nodes)
    simulated = run(experiment)
    joint = tree.joint([outcome.state_sha256 for outcome in outcomes.values()])
    assert joint == simulated.summary["state_sha256"]
    assert rows_of(sites.homes) == list(simulated.rows)
    assert audited(sites.homes) == []
    assert not any(entry["refused"] for outcome in outcomes.values() for entry in outcome.ledger.values())
    return sites.homes


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENOSPC])
def test_files_that_cannot_be_written_for_a_while_change_nothing_but_the_time(code, tmp_path, monkeypatch):
    monkeypatch.setattr(shortages, "_SHORTEST", 0.0)
    every_fifth = lambda call: call > 60 and call % 5 == 0  # noqa: E731
    monkeypatch.setattr(store, "put_in_place", failing(store.put_in_place, lacking(code), every_fifth))
    monkeypatch.setattr(store, "append", failing(store.append, of_the_store(code), lambda call: call % 3 == 0))
    homes = ends_as_simulated(tmp_path)
    for home in homes:
        assert logged(home, "shortage")
        assert len(logged(home, "shortage")) == len(logged(home, "shortage-over"))
        assert read_notice(home / "run") is None


def test_a_round_for_which_there_was_no_memory_is_played_again(tmp_path, monkeypatch):
    monkeypatch.setattr(shortages, "_SHORTEST", 0.0)
    monkeypatch.setattr(Learner, "fit", failing(Learner.fit, out_of_memory(), lambda call: call in (9, 10, 13)))
    homes = ends_as_simulated(tmp_path)
    assert {event["lacks"] for home in homes for event in logged(home, "shortage")} == {"memory"}


def test_a_message_for_which_there_is_no_memory_is_pulled_again_and_nobody_blamed(tmp_path, monkeypatch):
    monkeypatch.setattr(MessageForm, "read", failing(MessageForm.read, MemoryError(), lambda call: call in (2, 5)))
    homes = ends_as_simulated(tmp_path)
    assert sum(len(logged(home, "short")) for home in homes) == 2


@pytest.fixture
def waited():
    return []


@pytest.fixture
def site(tmp_path, waited):
    """The shortages of a site that waits for nothing."""
    journal = Journal(tmp_path / "log.jsonl")
    made = Shortages(tmp_path, journal, Metrics(), waited.append)
    yield made
    made.close()
    journal.close()


def test_waits_grow_and_what_is_lacking_is_said_meanwhile(site, waited, tmp_path):
    notices = []

    def act():
        notices.append(read_notice(tmp_path))
        if len(notices) < 9:
            raise lacking(errno.ENOSPC)
        return "done"

    assert site.outlast(act) == "done"
    assert waited == [0.5, 1, 2, 4, 8, 16, 30, 30]
    why = {"lacks": "space on the disk", "says": "[Errno 28] No space left on device"}
    assert notices == [None] + [why] * 8
    assert read_notice(tmp_path) is None
    assert [event["event"] for event in lines(tmp_path / "log.jsonl")] == ["shortage", "shortage-over"]


def test_other_errors_are_not_waited_for(site, waited):
    for error in (lacking(errno.EIO), of_the_store(errno.EROFS), RuntimeError("a bug"), ValueError()):
        with pytest.raises(type(error)):
            site.outlast(failing(None, error, lambda _: True))
        assert shortage(error) is None
    assert not waited


def test_an_operator_reads_that_a_site_pauses_and_goes_on(site):
    said = []
    site._journal._listen = SiteLines(said.append, rounds=9).event
    site.outlast(failing(lambda: None, lacking(errno.EMFILE), lambda call: call == 0))
    assert said[0].startswith("pausing: too little of open files that this process may have ([Errno 24] Too many open")
    assert said[1] == "going on after a pause of 0 s"


def test_a_site_that_cannot_read_its_message_says_busy_and_not_that_it_is_gone(tmp_path, monkeypatch):
    made = federation(tmp_path)
    door = gate(made, tmp_path)
    request = Request(Kind.PULL, made.membership.digest, 1, 0, 0, 100).packed()
    with monkeypatch.context() as scarce:
        scarce.setattr(Path, "open", failing(None, lacking(errno.EMFILE), lambda _: True))
        assert door.answer("b", request).reason is Reason.BUSY
    assert door.answer("b", request).status is Status.HERE
    door.journal.close()


def on_a_full_disk(home, events):
    """A site on whose disk there is no room after a while."""
    store.put_in_place = failing(store.put_in_place, lacking(errno.ENOSPC), lambda call: call > 12)
    leaves_on_sigterm(home, events)


def test_a_site_that_pauses_still_answers_and_leaves_when_asked_to(tmp_path):
    experiment = tiny('data.clusters="2"', "topology.name=complete", "training.steps=1", "data.skew=none")
    with founded(experiment, tmp_path, "patient", QUICK) as made, Processes(made.homes[1:]) as processes:
        process = processes.start(made.homes[0], on_a_full_disk)
        until(lambda: read_notice(made.homes[0] / "run"))
        shortage = logged(made.homes[0], "shortage")[0]
        assert shortage["lacks"] == "space on the disk"
        reached = logged(made.homes[0], "committed")[-1]["round"]
        until(lambda: {event["round"] for event in logged(made.homes[1], "heard")} >= set(range(reached + 1)))
        os.kill(process.pid, signal.SIGTERM)
        process.join(30)
        assert process.exitcode == 0
        assert read_notice(made.homes[0] / "run") is None


class TakesParts:
    """A file on a disk that is full after a few bytes."""

    def __init__(self, file):
        self.file = file

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()

    def __getattr__(self, name):
        return getattr(self.file, name)

    def write(self, content):
        if self.file.tell() > 8:
            raise lacking(errno.ENOSPC)
        return self.file.write(content[:3])


def test_what_is_appended_is_there_as_a_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "rows.jsonl"
    store.append(path, b"first\n")
    with monkeypatch.context() as full:
        opened = store.appending
        full.setattr(store, "appending", lambda path: TakesParts(opened(path)))
        with pytest.raises(StorageError, match="No space left on device"):
            store.append(path, b"second\n")
    assert path.read_bytes() == b"first\n"
    store.append(path, b"second\n")
    assert path.read_bytes() == b"first\nsecond\n"
