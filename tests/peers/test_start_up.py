"""How a run is begun, with peers that answer as they like and no network between."""

import threading
from types import SimpleNamespace

import pytest

from facade.peers.node import start_up
from facade.peers.node.journal import Journal, lines
from facade.peers.node.member_calls import AT_ONCE, MemberCalls
from facade.peers.node.start_up import StartUp
from facade.peers.protocol.headers import Reply, Status
from facade.peers.protocol.transport import UnreachableError
from peers.makers import federation

REFUSED, SILENT, SILENT_TOGETHER = "refused", "silent", "silent when as many others are asked as can be"


class Clock:
    """Time that passes when somebody pauses."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(start_up.time, "monotonic", lambda: self.now)

    def pause(self, seconds):
        self.now += seconds


@pytest.fixture
def starts(tmp_path, monkeypatch):
    """Site a of so many, and what the others say one time after another: the round each is in. How often they
    were asked before a began."""
    clock, opened, together = Clock(monkeypatch), [], threading.Barrier(AT_ONCE)

    def begun(wait, first_round, **says):
        made = federation(tmp_path, ["a", *says])
        membership = made.membership.model_copy(update={"first_round": first_round})
        journal = Journal(tmp_path / "log.jsonl")
        opened.append(journal)
        asked = dict.fromkeys(says, 0)

        def call(id):
            answers = says[id]
            answer = answers[min(asked[id], len(answers) - 1)]
            asked[id] += 1
            if answer == SILENT_TOGETHER:
                together.wait(10)
            if answer in (SILENT, SILENT_TOGETHER):
                raise UnreachableError("UNAVAILABLE")
            return Reply(Status.REFUSED, 99) if answer == REFUSED else Reply(Status.NOT_YET, answer)

        links = SimpleNamespace(to=lambda member: SimpleNamespace(call=lambda *_: call(member.id)))
        gate = SimpleNamespace(round=max(0, first_round - 1), await_farewell=clock.pause)
        wait(StartUp(MemberCalls(links, membership, "a"), gate, journal, lambda: None))
        return max(asked.values())

    yield begun
    for journal in opened:
        journal.close()


def test_one_that_says_to_be_ahead_does_not_make_a_joining_site_begin(starts):
    assert starts(StartUp.await_first_round, 9, b=[99], c=[8, 8, 9], d=[8]) == 3


def test_one_that_says_to_be_ahead_is_not_followed_while_others_have_another_list(starts):
    assert starts(StartUp.await_first_round, 9, b=[99], c=[REFUSED] * 3 + [9], d=[SILENT]) == 4


def test_two_are_enough_where_the_rest_is_silent(starts):
    assert starts(StartUp.await_first_round, 9, b=[9], c=[SILENT, 9], d=[SILENT]) == 2


def test_of_two_members_the_other_one_is_believed(starts):
    assert starts(StartUp.await_first_round, 9, b=[8, 8, 9]) == 3


def test_one_that_says_to_be_ahead_does_not_begin_a_founding(starts, tmp_path):
    assert starts(StartUp.await_everybody, 0, b=[5], c=[SILENT, SILENT, 0]) == 3
    assert [(event["event"], event["peers"]) for event in lines(tmp_path / "log.jsonl")] == [("waiting", ["c"])]


def test_a_late_founder_begins_when_most_others_have(starts):
    assert starts(StartUp.await_everybody, 0, b=[5], c=[5], d=[SILENT]) == 1


def test_who_has_another_list_or_is_silent_is_absent_after_the_deadline(starts, tmp_path):
    starts(StartUp.await_everybody, 0, b=[0], c=[REFUSED], d=[SILENT])
    said = [(event["event"], event["peers"]) for event in lines(tmp_path / "log.jsonl")]
    assert said == [("waiting", ["c", "d"]), ("absent", ["c", "d"])]


def test_those_who_are_silent_are_asked_side_by_side(starts):
    dead = {f"d{number}": [SILENT_TOGETHER, 9] for number in range(AT_ONCE)}
    assert starts(StartUp.await_first_round, 9, **dead) == 2
