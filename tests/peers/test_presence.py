"""Who is there, as a site knows it from its own calls."""

from types import SimpleNamespace

import pytest

from facade.peers.node import presence as times
from facade.peers.node.presence import Presence
from facade.peers.node.probing import NotedLinks
from facade.peers.protocol.headers import Kind, Reply, Request, Status
from facade.peers.protocol.refusals import Reason, RefusedError
from facade.peers.protocol.transport import UnreachableError


class Clock:
    """Time that passes when it is told to."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def presence(clock):
    return Presence(clock)


def test_who_has_answered_is_there_for_a_while_and_nobody_before(presence, clock):
    assert not presence.is_there("b")
    presence.note_answer("b")
    clock.now += times.ANSWERED_SECONDS
    assert presence.is_there("b")
    clock.now += 1
    assert (presence.is_there("b"), presence.is_silent("b")) == (False, False)


def test_a_probe_in_vain_makes_silent_until_the_next_answer(presence, clock):
    presence.note_answer("b")
    clock.now += 1
    presence.note_silence("b", since=clock.now)
    assert (presence.is_silent("b"), presence.is_there("b")) == (True, False)
    presence.note_answer("b")
    assert (presence.is_silent("b"), presence.is_there("b")) == (False, True)


def test_a_probe_in_vain_says_nothing_of_one_that_has_answered_since_it_was_sent(presence, clock):
    sent = clock.now
    clock.now += 1
    presence.note_answer("b")
    presence.note_silence("b", since=sent)
    assert not presence.is_silent("b")


def test_who_has_finished_is_there_for_good(presence, clock):
    presence.note_answer("b", finished=True)
    clock.now += 1000
    presence.note_silence("b", since=clock.now)
    assert presence.is_there("b")


def test_members_are_probed_when_they_have_answered_nothing_for_a_while(presence, clock):
    assert presence.take_due("bc") == ["b", "c"]
    assert presence.take_due("bc") == [], "they are being probed"
    clock.now += times.PROBE_SECONDS - 0.1
    presence.note_answer("b")
    clock.now += 0.1
    assert presence.take_due("bc") == ["c"]


def test_a_call_of_a_silent_member_has_it_probed_at_once_and_does_not_make_it_there(presence, clock):
    presence.take_due("b")
    presence.note_silence("b", since=clock.now)
    presence.note_call("b")
    assert presence.take_due("b") == [], "it was probed a moment ago"
    clock.now += times.CALLED_SECONDS
    assert presence.take_due("b") == ["b"]
    assert presence.is_silent("b")
    clock.now += times.CALLED_SECONDS
    assert presence.take_due("b") == [], "it has not called again"


def test_a_silent_member_is_back_when_it_answers_or_calls_for_the_first_time_in_a_while(presence, clock):
    presence.note_call("b")
    presence.note_silence("b", since=clock.now)
    for seconds, returns in ((1, 0), (times.ANSWERED_SECONDS + 1, 1), (1, 1), (times.ANSWERED_SECONDS, 1)):
        clock.now += seconds
        presence.note_call("b")
        assert presence.returns("b") == returns
    presence.note_answer("b")
    presence.note_answer("b")
    assert presence.returns("b") == 2


def test_a_call_of_one_that_answers_changes_nothing(presence, clock):
    presence.note_answer("b")
    clock.now += times.CALLED_SECONDS
    presence.note_call("b")
    assert (presence.take_due("b"), presence.returns("b")) == ([], 0)


PROBE, PULL = (Request(kind, b"l" * 32, 0, 3) for kind in (Kind.PROBE, Kind.PULL))
THERE, SILENT, UNKNOWN = "there", "silent", "unknown"


@pytest.mark.parametrize(
    ("request_", "answer", "known"),
    [
        (PROBE, Reply(Status.NOT_YET, 3), THERE),
        (PULL, Reply(Status.NOT_YET, 3), THERE),
        (PULL, Reply(Status.GONE, 9), THERE),
        (PROBE, Reply(Status.REFUSED, 3, Reason.BUSY), THERE),
        (PROBE, UnreachableError("PERMISSION_DENIED", denied=True), THERE),
        (PROBE, Reply(Status.REFUSED, 3, Reason.OTHER_MEMBERSHIP), SILENT),
        (PROBE, UnreachableError("UNAVAILABLE"), SILENT),
        (PROBE, RefusedError(Reason.MALFORMED_REPLY), SILENT),
        (PULL, Reply(Status.REFUSED, 3, Reason.OTHER_MEMBERSHIP), UNKNOWN),
        (PULL, UnreachableError("UNAVAILABLE"), UNKNOWN),
    ],
)
def test_links_note_who_answers(presence, request_, answer, known):
    def call(request, seconds):
        if isinstance(answer, Exception):
            raise answer
        return answer

    links = NotedLinks(SimpleNamespace(to=lambda peer: SimpleNamespace(call=call)), presence)
    link = links.to(SimpleNamespace(id="b"))
    if isinstance(answer, Exception):
        with pytest.raises(type(answer)):
            link.call(request_, 10)
    else:
        assert link.call(request_, 10) is answer
    assert (presence.is_there("b"), presence.is_silent("b")) == (known == THERE, known == SILENT)


def test_a_call_to_a_silent_member_is_given_up_early(presence, clock):
    granted = []
    peer = SimpleNamespace(call=lambda request, seconds: granted.append(seconds) or Reply(Status.NOT_YET, 3))
    link = NotedLinks(SimpleNamespace(to=lambda member: peer), presence).to(SimpleNamespace(id="b"))
    presence.note_silence("b", since=clock.now)
    for _ in range(2):
        link.call(PULL, 10)
    assert granted == [2, 10], "after an answer, a call has its usual time"
