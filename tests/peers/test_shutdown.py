"""How a run is left, with peers that answer as they like and no network between."""

from types import SimpleNamespace

import pytest

from facade.cli.network import limits_for
from facade.peers.node import shutdown
from facade.peers.node.journal import lines
from facade.peers.node.member_calls import MemberCalls
from facade.peers.node.shutdown import Shutdown
from facade.peers.node.waiting import Brisk, Patient
from facade.peers.protocol.headers import Reply, Status
from facade.peers.protocol.transport import UnreachableError
from facade.peers.trust.membership import Limits
from peers.makers import federation, gate

LIMITS = Limits(deadline=600, linger=60)
PATIENT = limits_for("patient", ["deadline=600"])
LAST = 10


class Hours:
    """Time that passes when somebody waits for a farewell, ten seconds at a time."""

    def __init__(self):
        self.now = 0.0

    def wait(self, seconds, unless_settled=()):
        self.now += 10


@pytest.fixture
def leaves(tmp_path, monkeypatch):
    """Site a, which has finished, and what b and c answer at a time: a round, a status, or None where they are
    silent. How many seconds a stays."""
    hours, opened = Hours(), []
    monkeypatch.setattr(shutdown.time, "monotonic", lambda: hours.now)

    def gone(how, policy, *, said_farewell=(), **says):
        limits = PATIENT if policy is Patient else LIMITS
        made = federation(tmp_path, limits=limits)
        own = gate(made, tmp_path, last_round=LAST)
        opened.append(own.journal)
        own.await_farewell = hours.wait
        for id in said_farewell:
            own.note_farewell(id)
        own.finish()

        def call(id):
            answer = says[id](hours.now)
            if answer is None:
                raise UnreachableError("UNAVAILABLE")
            return Reply(answer, LAST) if isinstance(answer, Status) else Reply(Status.NOT_YET, answer)

        links = SimpleNamespace(to=lambda member: SimpleNamespace(call=lambda *_: call(member.id)))
        how(Shutdown(MemberCalls(links, made.membership, "a"), own, own.journal, policy(limits)))
        return hours.now

    yield gone
    for journal in opened:
        journal.close()


def finished(now):
    return Status.FINISHED


def silent(now):
    return None


def test_who_has_finished_is_not_waited_for(leaves, tmp_path):
    assert leaves(Shutdown.say_farewell, Patient, b=finished, c=finished) == 0
    assert "staying" not in [event["event"] for event in lines(tmp_path / "log.jsonl")]


def test_the_log_says_once_for_whom_a_site_stays(leaves, tmp_path):
    leaves(Shutdown.say_farewell, Brisk, b=finished, c=silent)
    said = [event["peers"] for event in lines(tmp_path / "log.jsonl") if event["event"] == "staying"]
    assert said == [["c"]]


def test_under_patient_one_that_is_back_within_the_deadline_finds_the_others(leaves):
    assert (
        leaves(Shutdown.say_farewell, Patient, b=finished, c=lambda now: None if now < 590 else Status.FINISHED) == 590
    )


@pytest.mark.parametrize(("policy", "seconds"), [(Patient, 610), (Brisk, 70)])
def test_one_that_does_not_come_back_is_left(policy, seconds, leaves):
    assert leaves(Shutdown.say_farewell, policy, b=finished, c=silent) == seconds


def test_one_that_once_said_farewell_is_not_waited_for_until_the_deadline(leaves):
    assert leaves(Shutdown.say_farewell, Patient, said_farewell="c", b=finished, c=silent) == 20


def test_the_admin_may_set_another_limit_for_patient():
    assert limits_for("patient", ["deadline=90", "linger=7"]).linger == 7
    assert limits_for("brisk", ["deadline=90"]).linger == 60


def test_one_that_goes_on_is_served_beyond_the_deadline(leaves):
    slow = lambda now: Status.FINISHED if now >= 1500 else int(now // 500)  # noqa: E731
    assert leaves(Shutdown.say_farewell, Brisk, b=finished, c=slow) == 1500


def test_one_that_answers_and_does_not_go_on_is_left_after_the_deadline(leaves):
    assert leaves(Shutdown.say_farewell, Brisk, b=finished, c=lambda now: 5) == 610


def test_one_that_says_to_be_further_and_further_is_left_too(leaves):
    assert leaves(Shutdown.say_farewell, Brisk, b=finished, c=lambda now: LAST + int(now)) == 610


def test_a_removed_site_leaves_those_who_never_go_on_after_the_deadline(leaves):
    assert leaves(Shutdown.leave_as_removed, Brisk, b=lambda now: LAST + 1, c=lambda now: 5) == 610
