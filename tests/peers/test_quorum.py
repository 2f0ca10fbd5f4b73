"""Whether enough members are there: networks that fall into parts, in memory."""

from types import SimpleNamespace

import pytest

from facade import run
from facade.cli.network import limits_of
from facade.core import tree
from facade.errors import ExperimentError
from facade.peers.after.outcome import Outcome
from facade.peers.local_network import founded
from facade.peers.node import presence, probing
from facade.peers.node.journal import Journal, Metrics, lines
from facade.peers.node.member_calls import MemberCalls
from facade.peers.node.presence import Presence
from facade.peers.node.probing import NotedLinks
from facade.peers.node.quorum import Quorum
from facade.peers.node.site_epoch import RemovedError
from facade.peers.protocol.headers import Reply, Status
from facade.peers.protocol.transport import UnreachableError
from facade.peers.trust.membership import Change, Limits, changed
from peers.makers import QUICK, audited, federation, logged, tiny, until
from peers.memory import MemoryNetwork, opened, run_aside

CUT = 4
"""The round from which on messages do not get from side to side."""
BRISK = Limits(deadline=60, floor=0.5, grace=0.2, linger=1, window=4)
SIX = ('data.clusters="4:2"', "topology.degree=2", "training.rounds=14", "evaluation.every=14", "training.steps=1")


@pytest.fixture
def network(monkeypatch):
    """A network whose sites notice quickly who has gone and who is back."""
    monkeypatch.setattr(presence, "PROBE_SECONDS", 0.05)
    monkeypatch.setattr(presence, "CALLED_SECONDS", 0.02)
    monkeypatch.setattr(probing, "_PAUSE", 0.02)
    return MemoryNetwork()


def ends_of(nodes):
    ends = {id: run_aside(node) for id, node in nodes.items()}
    return lambda: {id: end() for id, end in ends.items()}


def between_pauses(home):
    """The events of a site's log while it pauses."""
    paused, seen = False, []
    for event in lines(home / "run" / "log.jsonl"):
        paused = event["event"] == "paused" or (paused and event["event"] != "resumed")
        seen += [event["event"]] if paused else []
    return seen


def test_both_halves_of_a_network_pause_and_end_with_the_state_of_the_simulator(network, tmp_path):
    experiment = tiny(*SIX)
    with founded(experiment, tmp_path, "patient", QUICK) as sites, opened(sites.homes, network) as nodes:
        network.part(("n0", "n1", "n2"), ("n3", "n4", "n5"), from_round=CUT)
        ends = ends_of(nodes)
        until(lambda: all(logged(home, "paused") for home in sites.homes))
        said = [logged(home, "paused") for home in sites.homes]
        assert {node.records.metrics.paused._value.get() for node in nodes.values()} == {1}
        network.heal()
        outcomes = ends()
    assert [len(each) for each in said] == [1] * 6
    assert {(each[0]["there"], each[0]["needed"], each[0]["members"]) for each in said} == {(3, 4, 6)}
    assert said[0][0]["absent"] == ["n3", "n4", "n5"]
    assert {node.records.metrics.paused._value.get() for node in nodes.values()} == {0}
    assert (
        tree.joint([outcome.state_sha256 for outcome in outcomes.values()]) == run(experiment).summary["state_sha256"]
    )
    assert audited(sites.homes) == []


def test_under_brisk_nobody_of_two_halves_plays_alone(network, tmp_path):
    limits = BRISK.model_copy(update={"floor": 20.0, "grace": 5.0})  # nobody is late but who is cut off
    with founded(tiny(*SIX), tmp_path, "brisk", limits) as sites, opened(sites.homes, network) as nodes:
        network.part(("n0", "n1", "n2"), ("n3", "n4", "n5"), from_round=CUT)
        ends = ends_of(nodes)
        until(lambda: all(logged(home, "paused") for home in sites.homes))
        network.heal()
        outcomes = ends()
    assert [type(outcome) for outcome in outcomes.values()] == [Outcome] * 6
    for home in sites.homes:
        assert all(event["heard"] for event in logged(home, "mixed"))
        assert "mixed" not in between_pauses(home)
    assert audited(sites.homes) == []


def test_of_two_parts_of_a_ring_the_smaller_one_pauses_and_catches_up_when_it_is_back(network, tmp_path):
    many, few = [f"n{i}" for i in range(4)], ["n4", "n5"]
    experiment = tiny(*SIX, "training.rounds=20", "evaluation.every=20", "topology.name=ring")
    with founded(experiment, tmp_path, "brisk", BRISK) as sites, opened(sites.homes, network) as nodes:
        homes = {home.name: home for home in sites.homes}
        network.part(many, few, from_round=CUT)
        ends = ends_of(nodes)
        until(lambda: all(logged(homes[id], "paused") for id in few))
        until(lambda: all(logged(homes[id], "committed")[-1]["round"] >= CUT + 9 for id in many))
        assert all(logged(homes[id], "committed")[-1]["round"] < CUT + 9 for id in few)
        network.heal()
        outcomes = ends()
    assert [type(outcome) for outcome in outcomes.values()] == [Outcome] * 6, outcomes
    assert [logged(homes[id], "paused") for id in many] == [[]] * 4
    for id in few:
        assert "mixed" not in between_pauses(homes[id])
        assert len(logged(homes[id], "resumed")) == len(logged(homes[id], "paused")) == 1
    assert audited(sites.homes) == []


def test_a_site_that_pauses_follows_a_new_list(network, tmp_path):
    rounds = ("training.rounds=8", "evaluation.every=8", "training.steps=1")
    experiment = tiny('data.clusters="4"', "data.skew=none", "topology.name=complete", *rounds)
    with founded(experiment, tmp_path, "brisk", BRISK) as sites, opened(sites.homes, network) as nodes:
        network.part(("n0", "n1"), ("n2",), ("n3",), from_round=CUT)
        ends = ends_of(nodes)
        until(lambda: all(logged(home, "paused") for home in sites.homes))
        first = nodes["n0"].followed_lists.membership
        two = first.experiment | {"data": first.experiment["data"] | {"clusters": "2"}}
        resized = first.model_copy(update={"experiment": two})
        here = min(node.gate.round for node in nodes.values())
        second = changed(resized, Change(remove=["n2", "n3"]), here).sign([tmp_path / "admin.key"])
        for home in sites.homes:
            (home / "membership.json").write_text(second)
        outcomes = ends()
    assert [type(outcomes[f"n{i}"]) for i in range(4)] == [Outcome, Outcome, RemovedError, RemovedError], outcomes
    assert [len(logged(home, "resumed")) for home in sites.homes] == [1, 1, 0, 0]


@pytest.fixture
def quorum_of(tmp_path):
    """The quorum of site a, given how the others answer a probe; and what it tells of a pause."""
    opened = []

    def made(ids, quorum=0.5, farewells=(), **answers):
        membership = federation(tmp_path, ids, limits=Limits(quorum=quorum)).membership

        def call(id):
            if answers.get(id) is None:
                raise UnreachableError("UNAVAILABLE")
            return Reply(answers[id], 3)

        asked = []
        links = SimpleNamespace(
            to=lambda member: SimpleNamespace(call=lambda *_: asked.append(member.id) or call(member.id))
        )
        here = Presence()
        journal = Journal(tmp_path / "log.jsonl")
        opened.append(journal)
        calls = MemberCalls(NotedLinks(links, here), membership, "a")
        lists = SimpleNamespace(membership=membership, check_in_force=lambda _: None)
        records = SimpleNamespace(journal=journal, metrics=Metrics())
        gate = SimpleNamespace(farewells=set(farewells))
        told = []
        quorum = Quorum(lists, gate, here, lambda: calls, records, lambda _, paused: told.append(paused))
        return SimpleNamespace(quorum=quorum, presence=here, answers=answers, asked=asked, told=told)

    yield made
    for journal in opened:
        journal.close()


THERE, DONE = Status.NOT_YET, Status.FINISHED


@pytest.mark.parametrize(
    ("ids", "share", "needed"),
    [("ab", 0.5, 2), ("abc", 0.5, 2), ("abcdef", 0.5, 4), ("abcde", 0.8, 5), ("abcdefghij", 0.7, 8), ("abc", 0.99, 3)],
)
def test_more_than_a_share_of_the_members_must_be_there(quorum_of, ids, share, needed):
    assert quorum_of(ids, quorum=share).quorum.needed == needed


def test_who_has_not_answered_yet_is_asked_before_a_site_pauses(quorum_of):
    made = quorum_of("abcd", b=THERE, c=THERE)
    assert made.quorum.hold(3) is False
    assert (sorted(made.asked), made.quorum.absent(), made.told) == (["b", "c", "d"], ["d"], [])


def test_who_has_finished_or_said_farewell_is_not_missed_at_the_end(quorum_of):
    made = quorum_of("abcdef", farewells="bc", d=DONE)
    assert made.quorum.hold(3) is False
    made.answers.clear()
    made.presence.note_silence("d", since=made.presence.now())
    assert made.quorum.hold(3) is False
    assert made.quorum.absent() == ["e", "f"]


def test_a_site_goes_on_alone_only_after_the_roll_was_called(quorum_of):
    made = quorum_of("abc", b=THERE, c=THERE)
    made.quorum.hold(3)
    made.asked.clear()
    assert made.quorum.hold(3) is False
    assert made.asked == [], "they have answered a moment ago"
    made.answers["c"] = None
    assert made.quorum.hold(3, unheard={"c"}) is False
    assert sorted(made.asked) == ["b", "c"]
    made.asked.clear()
    made.quorum.hold(3, unheard={"c"})
    assert made.asked == [], "it is known to be silent"


def test_a_pause_is_said_once_and_the_status_follows_who_is_absent(quorum_of, tmp_path, monkeypatch):
    made = quorum_of("abcde")
    returning = [None, "b", None, "c"]

    def wait(seconds):
        if (id := returning.pop(0)) is not None:
            made.presence.note_answer(id)

    monkeypatch.setattr(made.presence, "wait", wait)
    assert made.quorum.hold(3) is True
    assert [event["event"] for event in lines(tmp_path / "log.jsonl")] == ["paused", "resumed"]
    assert [paused and paused["absent"] for paused in made.told] == [list("bcde"), list("cde"), None]
    assert made.told[0] == {"there": 1, "needed": 3, "members": 5, "absent": list("bcde")}


@pytest.mark.parametrize("waived", [False, True])
def test_without_a_quorum_nobody_is_asked_and_nothing_is_waited_for(quorum_of, waived):
    made = quorum_of("abc", quorum=0.5 if waived else 0)
    made.quorum.waived = waived
    assert made.quorum.hold(3, unheard={"b"}) is False
    assert (made.asked, made.told) == ([], [])


def test_the_admin_sets_a_quorum_or_none():
    assert (limits_of([]).quorum, limits_of(["quorum=0"]).quorum) == (0.5, 0)
    with pytest.raises(ExperimentError, match="--limit: quorum"):
        limits_of(["quorum=1"])
