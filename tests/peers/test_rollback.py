"""Back to a round before a bad member: by a list that all sites follow."""

import copy
import dataclasses
import json
import shutil

import pytest

from facade import run
from facade.core import tree
from facade.errors import FacadeError
from facade.files.store import Store
from facade.peers.after.audit import audit
from facade.peers.after.outcome import Outcome
from facade.peers.local_network import Processes, founded
from facade.peers.node import rollback
from facade.peers.node.checkpoints import SiteCheckpoints, spaced
from facade.peers.node.followed_lists import GoBackError
from facade.peers.node.journal import Journal
from facade.peers.node.node import run_out
from facade.peers.node.outgoing import Outgoing
from facade.peers.node.pulling import Puller
from facade.peers.node.recovery import Recovery
from facade.peers.node.rollback import NoWayBackError, WayBack, go_back, roll_back
from facade.peers.node.site_epoch import RemovedError
from facade.peers.trust import identity
from facade.peers.trust.founding import NewSite, Terms, found_federation, found_site, schema_of
from facade.peers.trust.identity import Join
from facade.peers.trust.membership import Change, Epochs, Limits, changed, load
from facade.peers.trust.site import Site
from facade.runs.run_directory import RunDirectory
from peers.makers import QUICK, logged, pauses, tiny, until
from peers.memory import MemoryNetwork, run_all, run_aside

ROUNDS, SPOILED_FROM, BACK_TO = 14, 11, 10


class Sites:
    """Four sites that bring their own data; `c` may send broken models."""

    def __init__(self, base, ids="abcd", rounds=ROUNDS, settings=()):
        self.base, self.ids, self.network, self.nodes = base, ids, MemoryNetwork(), {}
        base.mkdir(exist_ok=True)
        self.key = base / "admin.key"
        self.admin = identity.new_signing_key(self.key)
        length = f"training.rounds={rounds}", f"evaluation.every={rounds}", "training.steps=1", "guard.rule=none"
        own_data = "data.source=given", f'data.clusters="{len(ids)}"', "data.skew=none", "topology.name=complete"
        terms = Terms("test", [self.admin], "patient", Limits(deadline=60, linger=0.5), schema_of(tiny()))
        self.lists = [found_federation([self.join(id) for id in ids], tiny(*own_data, *length, *settings), terms)]
        self.give(self.lists[0])

    def join(self, id):
        new = NewSite(id, "127.0.0.1:1", [self.admin], {"data": {"source": "digits"}})
        return Join.load(found_site(self.base / id, new))

    def copied(self, base):
        """The same sites, with all that they have, in another directory."""
        shutil.copytree(self.base, base)
        other = copy.copy(self)
        other.base, other.key, other.lists = base, base / "admin.key", list(self.lists)
        return other

    def give(self, membership, ids=None):
        """Put a list into sites' directories, and where the audit finds it."""
        text = membership.sign([self.key])
        (self.base / f"{membership.epoch}.json").write_text(text)
        for id in ids or self.ids:
            (self.base / id / "membership.json").write_text(text)

    def next(self, first_round, goes_back, remove=("c",)):
        self.lists.append(changed(self.lists[-1], Change(remove=list(remove), goes_back=goes_back), first_round))
        self.give(self.lists[-1])
        return self.lists[-1]

    def open(self, ids=None):
        self.nodes = {id: self.network.node(self.base / id) for id in ids or self.ids}
        return self.nodes

    def close(self):
        for node in self.nodes.values():
            node.close()
        self.nodes = {}

    def run(self, ids=None):
        """Open sites, run them to their ends, close them."""
        ends = run_all(self.open(ids))
        self.close()
        return ends

    def audit(self):
        logs = [self.base / id / "run" / "log.jsonl" for id in self.ids]
        return audit(logs, [self.base / f"{membership.epoch}.json" for membership in self.lists])


def spoils(node, first=SPOILED_FROM, times=-1.0):
    """From a round on, a node publishes its model times a number instead of what it has learnt."""
    publish = node.publisher.publish

    def spoilt(epoch, post):
        if post.round >= first:
            broken = tree.map(lambda leaf: leaf * times if leaf.is_floating_point() else leaf, post.outbox)
            post = dataclasses.replace(post, outbox=broken)
        publish(epoch, post)

    node.publisher.publish = spoilt


def left_in_time(sites, round):
    """What sites come to when the list without `c` is there before the round from which it counts."""
    sites.open()
    sites.next(round, goes_back=False)
    ends = run_all(sites.nodes)
    sites.close()
    return ends


@pytest.fixture(scope="module")
def without(tmp_path_factory):
    """The states that three sites end with when the fourth leaves in time, by id."""
    ends = left_in_time(Sites(tmp_path_factory.mktemp("in time")), BACK_TO)
    assert isinstance(ends.pop("c"), RemovedError)
    return {id: end.state_sha256 for id, end in ends.items()}


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """Four sites of which one has spoiled everybody's model."""
    sites = Sites(tmp_path_factory.mktemp("played"))
    spoils(sites.open()["c"])
    sites.ends = run_all(sites.nodes)
    sites.close()
    return sites


@pytest.fixture
def spoiled(played, tmp_path):
    """A copy of those."""
    return played.copied(tmp_path / "spoiled")


def test_after_a_bad_member_is_removed_all_go_back_and_end_as_if_it_had_left_in_time(spoiled, without, command):
    assert all(spoiled.ends[id].state_sha256 != without[id] for id in "abd"), "all are spoiled"
    remove = "network", "update", spoiled.base / "1.json", "--remove", "c", "--key", spoiled.key
    ended = command(*remove, "--back-to-round", BACK_TO, "-o", spoiled.base / "2.json")
    assert (ended.code, "All sites that take it go back to round 10" in ended.out) == (0, True), ended.err
    spoiled.lists.append(load(spoiled.base / "2.json", spoiled.lists[0].admins))
    for id in "abd":
        shutil.copy(spoiled.base / "2.json", spoiled.base / id / "membership.json")
    ended = command("node", "rollback", "--home", spoiled.base / "a", "--to-round", BACK_TO)
    assert "Back from round 14 to round 10, by the list of epoch 2" in ended.out, ended.err
    assert "round 10 of 14" in command("node", "status", "--home", spoiled.base / "a").out
    ends = spoiled.run("abd")  # the others go back by themselves
    assert {id: end.state_sha256 for id, end in ends.items()} == without
    (event,) = logged(spoiled.base / "b", "went-back")
    assert [event[fact] for fact in ("round", "epoch", "state", "before")] == [10, 2, 10, 14]
    aside = spoiled.base / "b" / "run" / "given-up" / "2"
    assert json.loads((aside / "outcome.json").read_text())["state_sha256"] == spoiled.ends["b"].state_sha256
    found = spoiled.audit()
    assert found.findings == []
    assert "b went back to round 10, by the list of epoch 2" in " ".join(found.notes)


def test_sites_that_broken_models_have_ended_come_back_as_well(tmp_path, without):
    sites = Sites(tmp_path / "ended")
    sites.open()
    for node in sites.nodes.values():
        fail_once_spoiled(node)
    spoils(sites.nodes["c"])
    ends = run_all(sites.nodes)
    assert {id for id, end in ends.items() if isinstance(end, FacadeError)} >= set("abd"), ends
    sites.close()
    sites.next(BACK_TO, goes_back=True)
    assert {id: end.state_sha256 for id, end in sites.run("abd").items()} == without


def fail_once_spoiled(node):
    """A node ends when it has heard a broken model, as one whose loss is no number any more."""
    pull = node.puller.pull

    def ending(membership, own, demand):
        if demand.round > SPOILED_FROM:
            raise FacadeError("the loss is no finite number")
        return pull(membership, own, demand)

    node.puller.pull = ending


class Running:
    """A site as a process runs it: opened again where a list goes back."""

    def __init__(self, sites, id):
        self.sites, self.id = sites, id

    def run(self):
        return run_out(lambda: self.sites.network.node(self.sites.base / self.id))


def test_running_sites_go_back_by_themselves_when_the_list_comes(tmp_path, without, monkeypatch):
    sites, pull = Sites(tmp_path / "running"), Puller.pull

    def the_list_comes_in_round_twelve(self, membership, own, demand):
        if (membership.epoch, own, demand.round, len(sites.lists)) == (1, 0, 12, 1):
            sites.next(BACK_TO, goes_back=True)
        return pull(self, membership, own, demand)

    monkeypatch.setattr(Puller, "pull", the_list_comes_in_round_twelve)
    bad = sites.network.node(sites.base / "c")
    spoils(bad)
    ends = {"c": run_aside(bad)} | {id: run_aside(Running(sites, id)) for id in "abd"}
    ends = {id: end() for id, end in ends.items()}
    bad.close()
    assert isinstance(ends.pop("c"), RemovedError)
    assert {id: end.state_sha256 for id, end in ends.items()} == without
    assert [logged(sites.base / id, "went-back")[0]["state"] for id in "abd"] == [10, 10, 10]
    assert sites.audit().findings == []


def test_real_sites_go_back_while_they_run_and_end_with_the_state_of_the_simulator(tmp_path):
    rounds = f"training.rounds={ROUNDS}", f"evaluation.every={ROUNDS}", "training.steps=1"
    experiment = tiny('data.clusters="2:1"', "topology.name=complete", *rounds)
    with founded(experiment, tmp_path, "patient", QUICK) as sites:
        *others, last = sites.homes
        with Processes(others) as processes:
            processes.start(last, pauses, (12,))
            until((last / "waits-12").exists)
            first = load(last / "membership.json", Site.load(last).settings.admins)
            back = changed(first, Change(goes_back=True), BACK_TO).sign([tmp_path / "admin.key"])
            for home in sites.homes:
                (home / "membership.json").write_text(back)
            until(lambda: all(logged(home, "went-back") for home in others))
            (last / "go-12").touch()
            assert [event["ended"] for _, event in processes.events() if "ended" in event] == [0, 0, 0]
    outcomes = [Outcome.load(home / "run") for home in sites.homes]
    assert [outcome.epoch for outcome in outcomes] == [2, 2, 2]
    assert tree.joint([outcome.state_sha256 for outcome in outcomes]) == run(experiment).summary["state_sha256"]


def test_back_to_the_beginning_equals_a_run_that_the_bad_member_was_never_in(spoiled, tmp_path):
    never = Sites(tmp_path / "never", "abd").run()
    spoiled.next(0, goes_back=True)
    for path in (spoiled.base / "a" / "run" / "checkpoints").iterdir():
        if int(path.stem) < 12:
            path.unlink()  # as after a hundred rounds
    ends = spoiled.run("abd")
    assert [logged(spoiled.base / id, "went-back")[0]["state"] for id in "abd"] == [None, 0, 0]
    assert {id: end.state_sha256 for id, end in ends.items()} == {id: end.state_sha256 for id, end in never.items()}


def test_who_joined_after_the_round_that_all_go_back_to_begins_anew_in_it(tmp_path):
    sites = Sites(tmp_path / "joined", rounds=6)
    sites.open()
    sites.lists.append(changed(sites.lists[0], Change(add=[sites.join("e")]), 4))
    sites.ids = "abcde"
    sites.give(sites.lists[1])
    sites.nodes |= {"e": sites.network.node(sites.base / "e")}
    assert all(isinstance(end, Outcome) for end in run_all(sites.nodes).values())
    sites.close()
    sites.next(2, goes_back=True)
    ends = sites.run("abde")
    assert [end.epoch for end in ends.values()] == [3] * 4, ends
    assert [event["round"] for event in logged(sites.base / "e", "committed") if event["epoch"] == 3] == [2, 3, 4, 5, 6]
    assert [logged(sites.base / id, "went-back")[0]["state"] for id in "abde"] == [0, 0, 0, None]
    assert sites.audit().findings == []


def test_the_final_exchange_alone_can_be_made_again(tmp_path):
    in_time = left_in_time(Sites(tmp_path / "honest"), ROUNDS)
    sites = Sites(tmp_path / "late")
    spoils(sites.open()["c"], first=ROUNDS)
    run_all(sites.nodes)
    sites.close()
    sites.next(ROUNDS, goes_back=True)
    ends = sites.run("abd")
    assert {id: end.state_sha256 for id, end in ends.items()} == {id: in_time[id].state_sha256 for id in "abd"}


def test_an_interrupted_way_back_is_gone_again_and_ends_in_the_same_files(spoiled, monkeypatch):
    home = spoiled.base / "a"
    spoiled.next(BACK_TO, goes_back=True)
    epochs = Epochs(spoiled.lists)
    steps = [
        (rollback, "_set_aside"), (Outgoing, "withdraw"), (Recovery, "go_back"), (SiteCheckpoints, "put_back"),
    ]  # fmt: skip
    kept = spoiled.base / "kept"
    shutil.copytree(home / "run", kept)
    ways = []
    for owner, name in [*steps, (None, "")]:
        shutil.rmtree(home / "run")
        shutil.copytree(kept, home / "run")
        site, journal = Site.load(home), Journal(home / "run" / "log.jsonl")
        if owner is not None:
            with monkeypatch.context() as broken:
                broken.setattr(owner, name, interrupted)
                with pytest.raises(KeyboardInterrupt):
                    go_back(site, epochs, journal)
        assert go_back(site, epochs, journal) == WayBack(10, 2, 10, 14)
        assert go_back(site, epochs, journal) is None, "it has gone"
        journal.close()
        ways.append(files(home / "run"))
    assert all(way == ways[-1] for way in ways)
    assert ("outcome.json" in ways[-1], "given-up/2/model.safetensors" in ways[-1]) == (False, True)
    assert max(Outgoing(home / "run" / "outgoing", 8).rounds) == 9


def interrupted(*_, **__):
    raise KeyboardInterrupt


def files(run):
    """The contents of a run directory, but for the log."""
    return {
        str(path.relative_to(run)): path.read_bytes()
        for path in sorted(run.rglob("*"))
        if path.is_file() and path.name != "log.jsonl"
    }


def test_a_site_goes_back_to_the_newest_state_before_the_round_and_says_where_it_has_none(spoiled):
    home = spoiled.base / "a"
    checkpoints = home / "run" / "checkpoints"
    assert [int(path.stem) for path in sorted(checkpoints.iterdir())] == [0, 10, 12, 13, 14]
    spoiled.next(11, goes_back=True)
    assert roll_back(home, 11) == WayBack(11, 2, 10, 14)
    assert SiteCheckpoints(RunDirectory(home / "run")).newest().round == 11
    assert roll_back(home, 11) is None
    other = spoiled.base / "b"
    for path in (other / "run" / "checkpoints").iterdir():
        if int(path.stem) <= 11:
            path.unlink()
    before = files(other / "run")
    with pytest.raises(NoWayBackError, match=r"no state of that round or an earlier one, only of 12, 13, 14; restore"):
        roll_back(other, 11)
    assert {name: content for name, content in files(other / "run").items() if "epochs" not in name} == {
        name: content for name, content in before.items() if "epochs" not in name
    }, "nothing was changed"


def test_nobody_goes_back_alone_nor_while_the_node_runs(spoiled, command):
    home = spoiled.base / "a"
    ended = command("node", "rollback", "--home", home, "--to-round", 10)
    assert ended.code == 2
    assert "goes on from round 0, not back to round 10, and nobody goes back alone; ask" in ended.err
    assert ended.err.count("\n") == 1
    with RunDirectory(home / "run").claimed():
        ended = command("node", "rollback", "--home", home, "--to-round", 10)
    assert ended.code == 2
    assert ended.err.strip().endswith(f"the node of {home} is running; stop it with SIGTERM, and go back then")
    ended = command("network", "update", spoiled.base / "1.json", "--remove", "c", "--key", spoiled.key)
    assert (ended.code, "give --from-round with a round that nobody has reached, or" in ended.err) == (2, True)


def test_lists_that_do_not_go_back_read_as_they_always_have(spoiled):
    assert "goes_back" not in json.loads((spoiled.base / "1.json").read_text())["membership"]
    back = spoiled.next(0, goes_back=True)
    assert json.loads((spoiled.base / "2.json").read_text())["membership"]["goes_back"] is True
    after = changed(back, Change(remove=["d"]), 5)
    assert (after.goes_back, after.epoch) == (False, 3)
    epochs = Epochs()
    for membership in (*spoiled.lists, after):
        epochs.add(membership)
    assert [epochs.governing(round).epoch for round in (0, 4, 5, 14)] == [2, 2, 3, 3]


def test_of_every_tenth_round_the_newest_ten_checkpoints_are_kept(tmp_path):
    kept = Store(tmp_path, 3, spaced)
    for round in range(137):
        kept.save(round, b"state")
    assert kept.numbers == [*range(40, 131, 10), 134, 135, 136]
    kept.save(90, b"gone back")
    assert kept.numbers == [*range(40, 91, 10)]


def test_an_audit_names_a_site_that_went_back_by_a_list_that_does_not(spoiled):
    second = spoiled.next(12, goes_back=False)
    log = Journal(spoiled.base / "a" / "run" / "log.jsonl")
    log.write("went-back", round=12, epoch=second.epoch, state=10, before=14)
    log.close()
    assert "a went back to round 12 by the list of epoch 2, which does not go back there" in spoiled.audit().findings[0]


def test_a_finished_run_is_an_outcome_again_after_the_way_back(spoiled):
    spoiled.next(BACK_TO, goes_back=True)
    assert isinstance(Outcome.load(spoiled.base / "a" / "run"), Outcome)
    roll_back(spoiled.base / "a", BACK_TO)
    assert Outcome.load(spoiled.base / "a" / "run") is None
    assert set(Recovery(spoiled.base / "a" / "run" / "recovery.jsonl").farewells) == set()


def test_a_finished_site_that_stays_goes_back_by_itself_when_the_list_comes(spoiled, monkeypatch):
    node = spoiled.open(["a"])["a"]
    monkeypatch.setattr(node.gate, "await_farewell", lambda _: spoiled.next(BACK_TO, goes_back=True))
    with pytest.raises(GoBackError):
        node.stay()
    spoiled.close()
    assert Outcome.load(spoiled.base / "a" / "run") is not None  # until it is opened again
    spoiled.open(["a"])
    assert spoiled.nodes["a"].outcome is None
    spoiled.close()


def test_after_a_crash_nobody_goes_on_from_a_state_that_is_kept_to_go_back_to(spoiled):
    run = spoiled.base / "a" / "run"
    damaged = sorted((run / "checkpoints").iterdir())[-3:]
    assert [int(path.stem) for path in damaged] == [12, 13, 14]
    for path in damaged:
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.warns(UserWarning, match="is damaged"):
        assert SiteCheckpoints(RunDirectory(run)).newest() is None
    spoiled.next(BACK_TO, goes_back=True)
    with pytest.warns(UserWarning, match="is damaged"):
        assert SiteCheckpoints(RunDirectory(run)).newest_up_to(BACK_TO).round == 10
