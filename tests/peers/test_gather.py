"""A round's pulling, with peers that answer as they like and no network between."""

import hashlib
import threading
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from facade.peers.node import pulling as pulling
from facade.peers.node.journal import Journal, Metrics, lines
from facade.peers.node.ledger import Ledger
from facade.peers.node.pulling import BehindError, Demand, Puller, ShutOutError
from facade.peers.node.waiting import Brisk, Patient
from facade.peers.protocol.headers import Reply, Status
from facade.peers.protocol.refusals import Reason
from facade.peers.protocol.rpc import UnreachableError
from facade.peers.protocol.wire import MessageForm, Origin, pack
from facade.peers.trust.membership import Limits
from peers.makers import federation

MESSAGE = {"model": {"w": torch.ones(1, 4)}}
LIMITS = Limits(deadline=600, floor=20, grace=0.1)


class Peers:
    """Stands for the links: what each peer does when it is called."""

    def __init__(self, membership, **does):
        self.membership, self.does, self.served, self.refused = membership, does, 0, 0
        self.silence = threading.Event()
        self.lengths, self.now, self.calls = [], 0.0, Counter()

    def to(self, member):
        answer = getattr(self, self.does[member.id])

        def call(request, seconds):
            self.calls[member.id] += 1
            return answer(member, request)

        return SimpleNamespace(call=call)

    def serves(self, member, request):
        content = pack(Origin(self.membership.digest, self.membership.number(member.id), request.round), MESSAGE)
        digest = hashlib.sha256(content).digest()
        self.served += 1
        return Reply(Status.HERE, request.round, total=len(content), digest=digest, chunk=content)

    def denies(self, member, request):
        raise UnreachableError("PERMISSION_DENIED: stranger", denied=True)

    def is_beyond(self, member, request):
        return Reply(Status.GONE, request.round + 2)

    def is_far_beyond(self, member, request):
        return Reply(Status.GONE, 1 << 40)

    def is_gone_but_not_beyond(self, member, request):
        return Reply(Status.GONE, request.round)

    def is_not_ready_before_another(self, member, request):
        return self.serves(member, request) if self.served else Reply(Status.NOT_YET, request.round)

    def is_not_ready(self, member, request):
        return Reply(Status.NOT_YET, request.round)

    def is_dead_before_another(self, member, request):
        return self.serves(member, request) if self.served else self.is_dead(member, request)

    def is_dead_for_a_few_calls(self, member, request):
        self.refused += 1
        return self.is_dead(member, request) if self.refused <= 3 else self.serves(member, request)

    def answers_nobody(self, member, request):
        self.silence.wait()
        return self.is_dead(member, request)

    def serves_and_breaks_the_silence(self, member, request):
        self.silence.set()
        return self.serves(member, request)

    def has_another_list_three_times(self, member, request):
        self.refused += 1
        refusal = Reply(Status.REFUSED, request.round, Reason.OTHER_MEMBERSHIP, digest=b"o" * 32)
        return refusal if self.refused <= 3 else self.serves(member, request)

    def serves_the_beginning(self, member, request):
        return self.answers_nobody(member, request) if request.offset else self.serves_a_part(member, request)

    def serves_a_part(self, member, request):
        whole = self.serves(member, request)
        return replace(whole, chunk=whole.chunk[request.offset :][: request.length])

    def serves_and_notes_how_much_is_asked_for(self, member, request):
        self.lengths.append(request.length)
        return self.serves_a_part(member, request)

    def serves_over_a_slow_line(self, member, request):
        """Five bytes a second."""
        self.lengths.append(request.length)
        self.now += min(request.length / 5, pulling._CALL_SECONDS)
        return self.is_dead(member, request) if request.length > 50 else self.serves_a_part(member, request)

    def is_training(self, member, request):
        """Holds the call for longer than it is waited for."""
        self.silence.wait()
        return Reply(Status.NOT_YET, request.round)

    def is_dead(self, member, request):
        raise UnreachableError("UNAVAILABLE")


@pytest.fixture
def gathering(tmp_path):
    """Site a asks those of b and c who do something; a gatherer and the question."""
    membership = federation(tmp_path).membership
    journal = Journal(tmp_path / "log.jsonl")

    def made(policy, refuse=lambda message: None, watch=lambda _: None, digests=None, **does):
        digests = {} if digests is None else digests
        gatherer = Puller(Peers(membership, **does), Ledger(), journal, Metrics(0), digests, watch)
        ask = Demand(3, [membership.number(id) for id in does], MessageForm(MESSAGE), refuse, 10, policy)
        return gatherer, lambda: gatherer.gather(membership, 0, ask)

    yield made
    journal.close()


def test_a_site_that_no_neighbour_admits_is_told_so_at_once(gathering):
    _, gather = gathering(Patient(LIMITS), b="denies", c="denies")
    with pytest.raises(ShutOutError):
        gather()


def test_one_neighbour_alone_does_not_shut_a_site_out(gathering):
    gatherer, gather = gathering(Patient(LIMITS), b="denies")
    assert gather() == {}
    assert gatherer._ledger.of("b").refused == {"not-admitted": 1}


def test_what_was_heard_is_counted(gathering):
    gatherer, gather = gathering(Patient(LIMITS), b="serves", c="serves")
    gather()
    size = MessageForm(MESSAGE).size
    entries = [gatherer._ledger.of(id) for id in "bc"]
    assert [(entry.heard, entry.bytes, entry.missed) for entry in entries] == [(1, size, 0)] * 2
    assert (gatherer._metrics.heard._value.get(), gatherer._metrics.bytes._value.get()) == (2, 2 * size)


def test_one_that_does_not_admit_this_site_is_not_waited_for(gathering):
    gatherer, gather = gathering(Patient(LIMITS), b="serves", c="denies")
    assert list(gather()) == [1]
    entry = gatherer._ledger.of("c")
    assert (entry.refused, entry.late, entry.missed) == ({"not-admitted": 1}, 0, 0)
    assert gatherer._metrics.misses._value.get() == 0


@pytest.mark.parametrize("late", ["is_not_ready_before_another", "is_dead_before_another"])
def test_one_that_comes_late_leaves_its_place_to_the_others(gathering, monkeypatch, late):
    monkeypatch.setattr(pulling, "MOST_CALLS", 1)
    _, gather = gathering(Patient(Limits(deadline=20)), b=late, c="serves")
    assert sorted(gather()) == [1, 2]


def test_one_that_never_answers_takes_no_place(gathering, monkeypatch):
    monkeypatch.setattr(pulling, "MOST_CALLS", 1)
    limits = Limits(deadline=20, floor=20, grace=0.1)
    _, gather = gathering(Brisk(limits), b="answers_nobody", c="serves_and_breaks_the_silence")
    assert list(gather()) == [2]


def pass_when(monkeypatch, happened):
    """Time stands still until something has happened; then every wait is over."""
    monkeypatch.setattr(pulling, "time", SimpleNamespace(monotonic=lambda: 1e6 if happened() else 0.0))


def test_one_whose_message_is_on_its_way_has_not_missed_and_is_waited_for_longer(gathering, monkeypatch):
    monkeypatch.setattr(pulling, "FIRST_CHUNK", 16)
    brisk = Brisk(Limits(deadline=600, floor=0.3, grace=0.1))
    gatherer, gather = gathering(brisk, b="serves_the_beginning", c="serves_the_beginning")
    pass_when(monkeypatch, lambda: min(gatherer._links.calls[id] for id in "bc") == 2)
    assert gather() == {}
    gatherer._links.silence.set()
    assert brisk.misses == {}
    assert brisk.longest == pytest.approx(0.6)
    assert gatherer._ledger.of("b").late == 1


def test_after_a_wait_that_brought_nothing_little_is_asked_for_first(gathering):
    brisk = Brisk(Limits(deadline=600, floor=0.1, grace=0.1))
    gatherer, gather = gathering(brisk, b="answers_nobody")
    peers = gatherer._links
    assert gather() == {}
    peers.silence.set()
    peers.does["b"] = "serves_and_notes_how_much_is_asked_for"
    brisk.usual = 60
    assert list(gather()) == [1]
    assert peers.lengths == [pulling.SMALLEST_CHUNK]


def test_what_a_line_does_not_carry_in_the_time_of_a_call_is_not_asked_for_again(gathering, monkeypatch):
    monkeypatch.setattr(pulling, "SMALLEST_CHUNK", 8)
    monkeypatch.setattr(pulling, "FIRST_CHUNK", 64)
    gatherer, gather = gathering(Patient(LIMITS), b="serves_over_a_slow_line")
    peers = gatherer._links
    monkeypatch.setattr(pulling, "time", SimpleNamespace(monotonic=lambda: peers.now))
    for _ in range(2):
        assert list(gather()) == [1]
    assert (peers.lengths[0], set(peers.lengths[1:])) == (64, {32})


def test_a_line_that_is_fast_carries_more_and_more_at_a_time():
    assert [pulling.next_chunk(1 << 18, seconds) for seconds in (0.1, 2.4, 2.6, 9.0)] == [1 << 19] * 2 + [1 << 18] * 2
    assert pulling.next_chunk(1 << 20, 0.1) == 1 << 20


def test_one_that_refuses_at_once_leaves_the_others_their_time(gathering):
    _, gather = gathering(Brisk(LIMITS), b="denies", c="is_dead_for_a_few_calls")
    assert list(gather()) == [2]


def test_a_check_that_fails_is_a_refusal_and_nobody_is_waited_for(gathering, tmp_path):
    gatherer, gather = gathering(Patient(LIMITS), refuse=lambda message: message["absent"], b="serves", c="serves")
    assert gather() == {}
    assert gatherer._ledger.of("c").refused == {"unusable": 1}
    assert "KeyError: 'absent'" in (tmp_path / "log.jsonl").read_text()


def test_a_late_message_may_be_accepted_while_digests_are_tidied(gathering):
    class Watched(dict):
        """Digests that a late pull adds to, if it may, while somebody reads them."""

        def items(self):
            assert gatherer._digests_lock.locked()
            return super().items()

        def setdefault(self, *given):
            assert gatherer._digests_lock.locked()
            return super().setdefault(*given)

    gatherer, gather = gathering(Patient(LIMITS), digests=Watched(), b="serves")
    assert list(gather()) == [1]
    assert [origin.round for origin in gatherer.digests] == [3]


def test_the_log_says_once_why_a_peer_refuses_this_site(gathering, tmp_path):
    gatherer, gather = gathering(Patient(LIMITS), b="has_another_list_three_times")
    assert list(gather()) == [1]
    told = [event for event in lines(tmp_path / "log.jsonl") if event["event"] == "refused"]
    ours = gatherer._links.membership.digest.hex()[:16]
    assert [(event["peer"], event["side"], event["reason"]) for event in told] == [("b", "callee", "other-membership")]
    assert told[0]["details"] == f"its list is {b'o'.hex() * 8}, ours {ours}"


def test_the_log_says_who_was_waited_for_in_vain_and_how_long(gathering, tmp_path):
    gatherer, gather = gathering(Brisk(LIMITS), b="serves", c="is_dead")
    for _ in range(3):
        assert list(gather()) == [1]
    missed = [event for event in lines(tmp_path / "log.jsonl") if event["event"] == "missed"]
    assert [event["peers"] for event in missed] == [["c"]] * 3
    assert all(0 <= event["granted"] <= 0.1 + 1e-6 for event in missed)
    assert all(event["waited"] >= event["granted"] for event in missed)
    assert gatherer._ledger.of("c").missed == 3


def test_what_is_noticed_while_waiting_ends_it(gathering):
    class NoticedError(Exception):
        pass

    def notice(round):
        raise NoticedError(round)

    _, gather = gathering(Patient(LIMITS), watch=notice, b="serves", c="is_dead")
    with pytest.raises(NoticedError, match="3"):
        gather()
    pulls = [thread for thread in threading.enumerate() if thread.name == "facade-pull-2"]
    for thread in pulls:
        thread.join(10)
    assert not any(thread.is_alive() for thread in pulls)


@pytest.mark.parametrize("other", ["is_beyond", "is_dead"])
def test_a_site_is_behind_when_more_have_left_its_round_than_offer_it(gathering, monkeypatch, other):
    gatherer, gather = gathering(Brisk(LIMITS), b="is_beyond", c=other)
    pass_when(monkeypatch, lambda: other == "is_dead" and gatherer._ledger.of("b").gone)
    with pytest.raises(BehindError) as behind:
        gather()
    assert behind.value.round == 5


def test_who_answers_and_has_not_gone_on_keeps_a_site_from_jumping(gathering, monkeypatch):
    gatherer, gather = gathering(Brisk(LIMITS), b="is_far_beyond", c="is_not_ready")
    pass_when(monkeypatch, lambda: gatherer._ledger.of("b").gone and gatherer._links.calls["c"] > 1)
    assert gather() == {}


def test_a_suspect_that_holds_the_call_is_not_outvoted_before_it_has_answered(gathering, monkeypatch):
    brisk = Brisk(LIMITS, misses={"c": 2})
    watched = []
    gatherer, gather = gathering(brisk, b="is_far_beyond", c="is_training", watch=watched.append)

    def go_on(round):
        watched.append(round)
        gatherer._links.silence.set()

    gatherer._watch = go_on
    pass_when(monkeypatch, lambda: gatherer._ledger.of("b").gone)
    assert gather() == {}
    assert watched, "its time was over, and it was waited for"


def test_one_that_has_left_the_round_is_missing_while_another_offers_it(gathering, tmp_path):
    gatherer, gather = gathering(Patient(LIMITS), b="is_far_beyond", c="serves")
    assert list(gather()) == [2]
    entry = gatherer._ledger.of("b")
    assert (entry.gone, entry.late, entry.missed) == (1, 0, 0)
    gone = [event for event in lines(tmp_path / "log.jsonl") if event["event"] == "gone"]
    assert [(event["round"], event["peer"]) for event in gone] == [(3, "b")]


@pytest.mark.parametrize(("other", "round"), [("is_far_beyond", 10), ("is_beyond", 5)])
def test_nobody_is_followed_beyond_the_last_round_nor_one_beyond_the_others(gathering, other, round):
    _, gather = gathering(Patient(LIMITS), b="is_far_beyond", c=other)
    with pytest.raises(BehindError) as behind:
        gather()
    assert behind.value.round == round


def test_one_that_has_left_the_round_but_is_not_beyond_it_is_refused(gathering):
    gatherer, gather = gathering(Patient(LIMITS), b="is_gone_but_not_beyond", c="is_gone_but_not_beyond")
    assert gather() == {}
    assert [gatherer._ledger.of(id).refused for id in "bc"] == [{"malformed-reply": 1}] * 2
