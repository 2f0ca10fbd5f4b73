"""One node in this process; what its peers would send is scripted."""

import errno
import os

import pytest
import torch

from facade.core import tree
from facade.errors import DivergedError, ExperimentError, FacadeError, StorageError
from facade.learning.learner import Learner
from facade.peers.after.outcome import read_site
from facade.peers.local_network import founded
from facade.peers.node import node as site_node
from facade.peers.node.journal import Journal, Metrics
from facade.peers.node.node import Node
from facade.peers.node.outgoing import DivergedReplayError, LostCheckpointError
from facade.peers.node.pulling import BehindError, ShutOutError
from facade.peers.protocol.headers import Kind, Request, Status
from facade.peers.protocol.rpc import Links
from facade.peers.protocol.wire import Origin
from facade.peers.trust.membership import Change, changed
from facade.peers.trust.site import Site
from peers.makers import QUICK, logged, tiny


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The first of four sites; it waits for nobody at the beginning and at the end."""
    monkeypatch.setattr(site_node, "await_everybody", lambda node: None)
    monkeypatch.setattr(site_node, "part", lambda node: None)
    settings = ("topology.degree=2", "training.rounds=12", "evaluation.every=12", "training.steps=1")
    with founded(tiny('data.clusters="3:1"', *settings), tmp_path, "patient", QUICK) as made:
        yield made.homes[0]


@pytest.fixture
def node(home):
    opened = Node(Site.load(home), shared_port=True)
    yield opened
    opened.close()


def scripted(node, *answers):
    """Nobody is heard, but the first questions are answered as given: an exception is raised."""
    rest = list(answers)
    asked = []

    def gather(membership, own, ask):
        asked.append(ask.round)
        answer = rest.pop(0) if rest else {}
        if isinstance(answer, Exception):
            raise answer
        return answer

    node._gatherer.gather = gather
    return asked


def test_a_node_that_cannot_listen_leaves_nothing_open(home, monkeypatch):
    closed = []
    for kind in (Journal, Metrics, Links):
        close = kind.close
        monkeypatch.setattr(kind, "close", lambda self, close=close: (closed.append(type(self)), close(self)))

    def taken(*_):
        raise ExperimentError("it cannot be listened on")

    monkeypatch.setattr(site_node, "Server", taken)
    with pytest.raises(ExperimentError, match="cannot be listened on"):
        Node(Site.load(home), shared_port=True)
    assert closed == [Links, Metrics, Journal]


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
    asked = scripted(node, {}, BehindError(9), site_node._NextEpochError())
    assert node.run()
    assert asked[:4] == [0, 1, 9, 9]
    assert [event["round"] for event in logged(node.site.home, "committed")][:4] == [0, 1, 9, 10]


def test_a_message_that_is_not_the_published_one_costs_no_checkpoint(node, home):
    scripted(node)
    node.run()
    (home / "run" / "outcome.json").unlink()
    node.close()
    before = {path.name: path.read_bytes() for path in (home / "run" / "checkpoints").iterdir()}
    again = Node(Site.load(home), shared_port=True)
    scripted(again)
    published = again._outgoing._published
    published[12] = published[12]._replace(digest=b"another")
    with pytest.raises(DivergedReplayError, match="round 12, played again"):
        again.run()
    again.close()
    assert {path.name: path.read_bytes() for path in (home / "run" / "checkpoints").iterdir()} == before


def test_a_site_publishes_nothing_that_nobody_would_use(node):
    algorithm = node._scene.setup.algorithm
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

    def gather(membership, own, ask):
        heard.setdefault(2, ask.form._own)
        return {2: ask.form._own}

    def diverge(self, *_, **__):
        if heard:
            raise DivergedError("training diverged")
        return fit(self, *_, **__)

    fit = Learner.fit
    monkeypatch.setattr(Learner, "fit", diverge)
    node._gatherer.gather = gather
    with pytest.raises(DivergedError, match=r"training diverged\. Mixed before it were messages of n2: if one"):
        node.run()


def test_the_policy_is_told_how_long_every_training_took_and_nothing_else(node, monkeypatch):
    now = iter(range(10_000))
    monkeypatch.setattr(site_node.time, "monotonic", lambda: float(next(now)))
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
    again = Node(Site.load(home), shared_port=True)
    assert again.run() == ended
    again.close()
    assert [(home / "run" / name).read_text() for name in ("rows.jsonl", "site.json")] == written


def test_a_finished_site_can_still_be_asked_what_joining_was_worth(node, home, monkeypatch):
    scripted(node)
    node.run()
    node.close()
    path, trained = home / "run" / "site.json", []
    alone = [[1 if row == column else 0 for column in range(10)] for row in range(10)]
    monkeypatch.setattr(site_node.beside, "alone", lambda scene: trained.append(scene) or alone)
    assert read_site(path).gain is None
    for _ in range(2):
        again = Node(Site.load(home), baseline=True, shared_port=True)
        again.run()
        again.close()
    assert read_site(path).gain <= 0
    assert len(trained) == 1


def test_who_said_farewell_before_a_restart_is_remembered(node, home):
    farewell = Request(Kind.FAREWELL, node.membership.digest, 1, 12)
    for _ in range(2):
        node.gate.answer("n1", farewell.packed())
    node.close()
    assert [event["peer"] for event in logged(home, "parted")] == ["n1"]
    again = Node(Site.load(home), shared_port=True)
    again.close()
    assert (again.gate.parted, again.gate.settled) == ({"n1"}, set())


def test_what_was_heard_under_an_earlier_list_is_no_equivocation_after_a_restart(node):
    first = node.membership
    second = changed(first, Change(), 1)
    node.lists.epochs.add(second)
    for epoch, digest in ((1, "old"), (1, "older"), (2, "new"), (2, "newer")):
        node.journal.write("heard", round=1, epoch=epoch, peer="n2", sha256=digest)
    node.journal.write("heard", round=1, peer="n2", sha256="in a log of an earlier version")
    assert node._heard_before(1) == {Origin(first.digest, 2, 1): "old", Origin(second.digest, 2, 1): "new"}
    assert node._heard_before(2) == {}


class KilledError(Exception):
    """The end of a process."""


def play_until_killed(home, last):
    """Play rounds in which only the first of the neighbours asked is heard; who was heard in which."""
    node, heard = Node(Site.load(home), shared_port=True), {}

    def gather(membership, own, ask):
        if ask.round > last:
            raise KilledError
        heard[ask.round] = ask.senders[:1]
        return said(ask, heard[ask.round])

    node._gatherer.gather = gather
    with pytest.raises(KilledError):
        node.run()
    node.close()
    return heard


def said(ask, senders):
    """Messages like one's own, with other weights from every sender."""

    def scaled(sender):
        return lambda leaf: leaf * (1 + sender / 10) if leaf.is_floating_point() else leaf

    return {sender: tree.map(scaled(sender), ask.form._own) for sender in senders}


def damage_newest(directory):
    newest = max(directory.glob("*.saved"))
    newest.write_bytes(newest.read_bytes()[:-1])


def test_after_a_damaged_checkpoint_a_round_is_mixed_from_those_who_were_heard_before(home):
    before = play_until_killed(home, last=3)
    damage_newest(home / "run" / "checkpoints")
    with pytest.warns(UserWarning, match="is damaged"):
        node = Node(Site.load(home), shared_port=True)
    asked = {}

    def gather(membership, own, ask):
        asked[ask.round] = ask.senders
        return said(ask, ask.senders)

    node._gatherer.gather = gather
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
        with pytest.raises(LostCheckpointError, match=rf"up to round 10 are .*rows.jsonl has {len(left or b'')} bytes"):
            Node(Site.load(home), shared_port=True)
    assert sorted(path.name for path in (run / "outgoing").iterdir()) == published
    (run / "rows.jsonl").write_bytes(rows)
    Node(Site.load(home), shared_port=True).close()


@pytest.mark.parametrize(
    "lost", [["checkpoints"], ["checkpoints", "outgoing"], ["checkpoints", "outgoing", "rows.jsonl"]]
)
def test_a_begun_run_without_its_checkpoints_is_not_begun_again(lost, home):
    play_until_killed(home, last=2)
    for name in lost:
        (home / "run" / name).rename(home / name)
    with pytest.raises(LostCheckpointError, match=r"checkpoints holds no checkpoint that is whole; restore"):
        Node(Site.load(home), shared_port=True)
    (home / "run").rename(home / "moved away")
    Node(Site.load(home), shared_port=True).close()


def test_one_who_was_heard_before_and_is_silent_now_is_named(home):
    before = play_until_killed(home, last=3)
    damage_newest(home / "run" / "checkpoints")
    with pytest.warns(UserWarning, match="is damaged"):
        node = Node(Site.load(home), shared_port=True)
    scripted(node)
    with pytest.raises(FacadeError, match=rf"round 3 must be played again.* n{before[3][0]}, heard in it before"):
        node.run()
    node.close()


def test_scenes_are_dropped_when_the_window_has_passed_them(node):
    forgotten = []
    node.lists.forget = forgotten.append
    scripted(node)
    assert node.run()
    assert forgotten == [round - node.membership.limits.window for round in range(13)]


def test_the_others_need_not_wait_while_a_finished_site_trains_alone(home, monkeypatch):
    node = Node(Site.load(home), baseline=True, shared_port=True)
    scripted(node)
    farewell = Request(Kind.FAREWELL, node.membership.digest, 1, 12)
    said = []
    monkeypatch.setattr(site_node.beside, "alone", lambda scene: said.append(node.gate.answer("n1", farewell.packed())))
    assert node.run()
    node.close()
    assert [(reply.status, reply.round) for reply in said] == [(Status.FINISHED, 12)]
    assert node.gate.settled == {"n1"}


def test_a_full_disk_is_said_in_a_sentence_and_the_status_stays_whole(node, home, monkeypatch):
    scripted(node)
    node.run()
    before = (home / "run" / "status.json").read_bytes()

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(StorageError, match=r"status.json could not be written: No space left on device"):
        node._write_status(3)
    monkeypatch.undo()
    assert (home / "run" / "status.json").read_bytes() == before


def test_a_node_never_says_that_a_round_is_gone_from_an_older_one(node):
    scripted(node, BehindError(9))
    listed, said = node.membership, []
    commit = node._outgoing.commit

    def asked_meanwhile(round, content):
        made = commit(round, content)
        for earlier in range(round):
            request = Request(Kind.PULL, listed.digest, 1, earlier, 0, 100)
            said.append((earlier, node.gate.answer(listed.members[1].id, request.packed())))
        return made

    node._outgoing.commit = asked_meanwhile
    assert node.run()
    gone = [(earlier, reply.round) for earlier, reply in said if reply.status is Status.GONE]
    assert gone
    assert all(there > earlier for earlier, there in gone)
