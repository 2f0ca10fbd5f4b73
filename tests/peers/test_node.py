"""One node in this process; what its peers would send is scripted."""

import errno
import json
import os

import pytest
import torch

from facade.core import tree
from facade.errors import DivergedError, ExperimentError, FacadeError
from facade.learning.learner import Learner
from facade.peers.after.outcome import read_site
from facade.peers.local_network import founded
from facade.peers.node import node as site_node
from facade.peers.node import playing
from facade.peers.node.checkpoints import LostCheckpointError
from facade.peers.node.followed_lists import NextEpochError
from facade.peers.node.journal import Journal
from facade.peers.node.metrics_server import MetricsServer
from facade.peers.node.outgoing import DivergedReplayError
from facade.peers.node.recovery import Recovery
from facade.peers.node.round_pulls import BehindError, ShutOutError
from facade.peers.node.shortages import read_notice
from facade.peers.node.shutdown import Shutdown
from facade.peers.node.start_up import StartUp
from facade.peers.protocol import rpc
from facade.peers.protocol.headers import Kind, Request, Status
from facade.peers.protocol.rpc import Links
from facade.peers.protocol.wire import Origin
from facade.peers.trust.membership import Change, changed
from peers.makers import QUICK, logged, real_node, tiny
from peers.memory import KilledError


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The first of four sites; it waits for nobody at the beginning and at the end."""
    monkeypatch.setattr(StartUp, "await_everybody", lambda _: None)
    monkeypatch.setattr(Shutdown, "say_farewell", lambda _: None)
    settings = ("topology.degree=2", "training.rounds=12", "evaluation.every=12", "training.steps=1")
    alone = QUICK.model_copy(update={"quorum": 0})
    with founded(tiny('data.clusters="3:1"', *settings), tmp_path, "patient", alone) as made:
        yield made.homes[0]


@pytest.fixture
def node(home):
    opened = real_node(home)
    yield opened
    opened.close()


def scripted(node, *answers):
    """Nobody is heard, but the first questions are answered as given: an exception is raised."""
    rest = list(answers)
    asked = []

    def pull(membership, own, demand):
        asked.append(demand.round)
        answer = rest.pop(0) if rest else {}
        if isinstance(answer, Exception):
            raise answer
        return answer

    node.puller.pull = pull
    return asked


def test_a_node_that_cannot_listen_leaves_nothing_open(home, monkeypatch):
    closed = []
    (home / "node.toml").write_text("metrics_port = 9100\n" + (home / "node.toml").read_text())
    monkeypatch.setattr(site_node, "MetricsServer", lambda _, *parts: MetricsServer(("127.0.0.1", 0), *parts))
    for kind in (Journal, MetricsServer, Links):
        close = kind.close
        monkeypatch.setattr(kind, "close", lambda self, close=close: (closed.append(type(self)), close(self)))

    def taken(*_):
        raise ExperimentError("it cannot be listened on")

    monkeypatch.setattr(rpc, "Server", taken)
    with pytest.raises(ExperimentError, match="cannot be listened on"):
        real_node(home)
    assert closed == [Links, MetricsServer, Journal]


def test_a_node_that_is_behind_jumps_and_jumps_further_if_the_others_went_on(node):
    asked = scripted(node, {}, BehindError(7), BehindError(10))
    assert node.run()
    assert [event["round"] for event in logged(node.site.home, "jumped")] == [7, 10]
    assert asked[:3] == [0, 1, 7]
    assert [event["round"] for event in logged(node.site.home, "committed")] == [0, 1, 10, 11, 12]


def test_messages_of_older_rounds_that_are_gone_are_missing_where_a_node_arrives(node):
    asked = scripted(node, BehindError(9), {}, BehindError(11))
    assert node.run()
    assert [event["round"] for event in logged(node.site.home, "jumped")] == [9]
    assert asked[:3] == [0, 9, 8]


def test_a_node_that_nobody_admits_where_it_arrives_says_so_in_a_sentence(node):
    scripted(node, BehindError(9), ShutOutError())
    with pytest.raises(FacadeError, match="no neighbour admits this site in round 0"):
        node.run()


def test_a_list_that_comes_while_a_node_jumps_is_played_by(node):
    asked = scripted(node, {}, BehindError(9), NextEpochError())
    assert node.run()
    assert asked[:4] == [0, 1, 9, 9]
    assert [event["round"] for event in logged(node.site.home, "committed")][:4] == [0, 1, 9, 10]


def test_a_message_that_is_not_the_published_one_costs_no_checkpoint(node, home):
    scripted(node)
    node.run()
    (home / "run" / "outcome.json").unlink()
    node.close()
    before = {path.name: path.read_bytes() for path in (home / "run" / "checkpoints").iterdir()}
    again = real_node(home)
    scripted(again)
    published = again.files.outgoing._published
    published[12] = published[12]._replace(digest=b"another")
    with pytest.raises(DivergedReplayError, match="round 12, played again"):
        again.run()
    again.close()
    assert {path.name: path.read_bytes() for path in (home / "run" / "checkpoints").iterdir()} == before


def test_a_site_publishes_nothing_that_nobody_would_use(node):
    algorithm = node.followed_lists.in_force.setup.algorithm
    message = type(algorithm).message

    def broken(self, turn, state):
        return tree.map(lambda leaf: leaf * torch.nan if leaf.is_floating_point() else leaf, message(self, turn, state))

    scripted(node)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(type(algorithm), "message", broken)
        with pytest.raises(FacadeError, match=r"own message of round 0 holds values that are not finite \("):
            node.run()
    assert logged(node.site.home, "committed") == []


def test_where_training_diverges_those_who_were_mixed_are_named(node, monkeypatch):
    heard = {}

    def pull(membership, own, demand):
        heard.setdefault(2, demand.form._own)
        return {2: demand.form._own}

    def diverge(self, *_, **__):
        if heard:
            raise DivergedError("training diverged")
        return fit(self, *_, **__)

    fit = Learner.fit
    monkeypatch.setattr(Learner, "fit", diverge)
    node.puller.pull = pull
    with pytest.raises(DivergedError, match=r"training diverged\. Mixed before it were messages of n2: if one"):
        node.run()


def test_the_policy_is_told_how_long_every_training_took_and_nothing_else(node, monkeypatch):
    now = iter(range(10_000))
    monkeypatch.setattr(playing.time, "monotonic", lambda: float(next(now)))
    told = []
    node.policy.trained = told.append
    scripted(node)
    assert node.run()
    assert (len(told), min(told) > 0) == (12, True)


def test_a_finished_site_that_is_started_again_keeps_its_rows_and_says_the_same(node, home):
    scripted(node)
    ended = node.run()
    written = [(home / "run" / name).read_text() for name in ("rows.jsonl", "site.json")]
    (home / "run" / "site.json").unlink()  # killed before it was written
    node.close()
    again = real_node(home)
    assert again.run() == ended
    again.close()
    assert [(home / "run" / name).read_text() for name in ("rows.jsonl", "site.json")] == written


def test_a_finished_site_can_still_be_asked_what_joining_was_worth(node, home, monkeypatch):
    scripted(node)
    node.run()
    node.close()
    path, trained = home / "run" / "site.json", []
    alone = {"confusion": [[1 if row == column else 0 for column in range(10)] for row in range(10)]}
    monkeypatch.setattr(site_node.training_alone, "alone", lambda epoch: trained.append(epoch) or alone)
    assert read_site(path).gain is None
    for _ in range(2):
        again = real_node(home)
        again.run(baseline=True)
        again.close()
    assert read_site(path).gain <= 0
    assert len(trained) == 1


def test_who_said_farewell_before_a_restart_is_remembered(node, home):
    farewell = Request(Kind.FAREWELL, node.followed_lists.membership.digest, 1, 12)
    for _ in range(2):
        node.gate.answer("n1", farewell.packed())
    node.close()
    assert [event["peer"] for event in logged(home, "parted")] == ["n1"]
    again = real_node(home)
    again.close()
    assert (again.gate.farewells, again.gate.settled) == ({"n1"}, set())


def test_what_was_heard_under_an_earlier_list_is_no_equivocation_after_a_restart(node, tmp_path):
    first = node.followed_lists.membership
    second = changed(first, Change(), 1)
    before = Recovery(tmp_path / "recovery.jsonl")
    for membership, digests in ((first, ("old", "older")), (second, ("new", "newer"))):
        origin = Origin(membership.digest, 2, 1)
        for digest in digests:
            before.first_digest(origin, digest)
        before.note_heard(origin)
    after = Recovery(tmp_path / "recovery.jsonl")
    firsts = [after.first_digest(Origin(membership.digest, 2, 1), "another") for membership in (first, second)]
    assert firsts == ["old", "new"]


def play_until_killed(home, last):
    """Play rounds in which only the first of the neighbours asked is heard; who was heard in which."""
    node, heard = real_node(home), {}

    def pull(membership, own, demand):
        if demand.round > last:
            raise KilledError
        heard[demand.round] = demand.senders[:1]
        return said(demand, heard[demand.round])

    node.puller.pull = pull
    with pytest.raises(KilledError):
        node.run()
    node.close()
    return heard


def said(demand, senders):
    """Messages like one's own, with other weights from every sender."""

    def scaled(sender):
        return lambda leaf: leaf * (1 + sender / 10) if leaf.is_floating_point() else leaf

    return {sender: tree.map(scaled(sender), demand.form._own) for sender in senders}


def damage_newest(directory):
    newest = max(directory.glob("*.saved"))
    newest.write_bytes(newest.read_bytes()[:-1])


def test_after_a_damaged_checkpoint_a_round_is_mixed_from_those_who_were_heard_before(home):
    before = play_until_killed(home, last=3)
    damage_newest(home / "run" / "checkpoints")
    with pytest.warns(UserWarning, match="is damaged"):
        node = real_node(home)
    asked = {}

    def pull(membership, own, demand):
        asked[demand.round] = demand.senders
        return said(demand, demand.senders)

    node.puller.pull = pull
    assert node.run()
    node.close()
    assert (min(asked), asked[3]) == (3, before[3])
    assert len(asked[4]) == 2, "beyond what is published everybody is heard again"


def test_a_begun_run_without_its_rows_is_not_begun_again(home):
    play_until_killed(home, last=9)
    run = home / "run"
    published = sorted(path.name for path in (run / "outgoing").iterdir())
    rows = (run / "rows.jsonl").read_bytes()
    for left in (b"", rows[:1000], None):
        (run / "rows.jsonl").write_bytes(left) if left is not None else (run / "rows.jsonl").unlink()
        with (
            pytest.warns(UserWarning, match=r"rows.jsonl that it counts on are missing"),
            pytest.raises(LostCheckpointError, match=rf"up to round 10 are .*rows.jsonl has {len(left or b'')} bytes"),
        ):
            real_node(home)
    assert sorted(path.name for path in (run / "outgoing").iterdir()) == published
    (run / "rows.jsonl").write_bytes(rows)
    real_node(home).close()


@pytest.mark.parametrize(
    "lost", [["checkpoints"], ["checkpoints", "outgoing"], ["checkpoints", "outgoing", "rows.jsonl"]]
)
def test_a_begun_run_without_its_checkpoints_is_not_begun_again(lost, home):
    play_until_killed(home, last=2)
    for name in lost:
        (home / "run" / name).rename(home / name)
    with pytest.raises(LostCheckpointError, match=r"checkpoints holds no checkpoint that is whole; restore"):
        real_node(home)
    (home / "run").rename(home / "moved away")
    real_node(home).close()


def test_one_who_was_heard_before_and_is_silent_now_is_named(home):
    before = play_until_killed(home, last=3)
    damage_newest(home / "run" / "checkpoints")
    with pytest.warns(UserWarning, match="is damaged"):
        node = real_node(home)
    scripted(node)
    with pytest.raises(FacadeError, match=rf"round 3 must be played again.* n{before[3][0]}, heard in it before"):
        node.run()
    node.close()


def test_epochs_are_dropped_when_the_window_has_passed_them(node):
    forgotten = []
    node.followed_lists.forget = forgotten.append
    scripted(node)
    assert node.run()
    assert forgotten == [round - node.followed_lists.membership.limits.window for round in range(13)]


def test_the_others_need_not_wait_while_a_finished_site_trains_alone(home, monkeypatch):
    node = real_node(home)
    scripted(node)
    farewell = Request(Kind.FAREWELL, node.followed_lists.membership.digest, 1, 12)
    said = []
    monkeypatch.setattr(
        site_node.training_alone, "alone", lambda epoch: said.append(node.gate.answer("n1", farewell.packed()))
    )
    assert node.run(baseline=True)
    node.close()
    assert [(reply.status, reply.round) for reply in said] == [(Status.FINISHED, 12)]
    assert node.gate.settled == {"n1"}


def test_on_a_full_disk_the_status_stays_whole_and_is_written_when_there_is_room(node, home, monkeypatch):
    scripted(node)
    node.run()
    path, said = home / "run" / "status.json", []
    before = path.read_bytes()

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def make_room(_):
        said.append(read_notice(home / "run")["says"])
        assert path.read_bytes() == before
        monkeypatch.undo()

    monkeypatch.setattr(os, "replace", full)
    node.shortages._wait = make_room
    node.publisher.write_status(node.followed_lists.in_force, 3)
    assert [text.partition("status.json ")[2] for text in said] == [
        "could not be written: No space left on device; what was there is unchanged"
    ]
    assert json.loads(path.read_bytes())["round"] == 3


def test_a_node_never_says_that_a_round_is_gone_from_an_older_one(node):
    scripted(node, BehindError(9))
    listed, said = node.followed_lists.membership, []
    commit = node.files.outgoing.commit

    def asked_meanwhile(round, content):
        made = commit(round, content)
        for earlier in range(round):
            request = Request(Kind.PULL, listed.digest, 1, earlier, 0, 100)
            said.append((earlier, node.gate.answer(listed.members[1].id, request.packed())))
        return made

    node.files.outgoing.commit = asked_meanwhile
    assert node.run()
    gone = [(earlier, reply.round) for earlier, reply in said if reply.status is Status.GONE]
    assert gone
    assert all(there > earlier for earlier, there in gone)
