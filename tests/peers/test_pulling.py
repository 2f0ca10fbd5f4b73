"""A round's pulling, with peers that answer as they like and no network between."""

import hashlib
import sys
import threading
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from facade.peers.node import pulling
from facade.peers.node.journal import Journal, Metrics, lines
from facade.peers.node.ledger import Ledger
from facade.peers.node.pulling import Puller
from facade.peers.node.records import Records
from facade.peers.node.recovery import Recovery
from facade.peers.node.round_pulls import BehindError, Demand, ShutOutError
from facade.peers.node.waiting import Brisk, Patient
from facade.peers.protocol.headers import Reply, Status
from facade.peers.protocol.refusals import Reason
from facade.peers.protocol.transport import UnreachableError
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

    def serves_another(self, member, request):
        content = pack(
            Origin(self.membership.digest, self.membership.number(member.id), request.round),
            {"model": {"w": 2 * MESSAGE["model"]["w"]}},
        )
        digest = hashlib.sha256(content).digest()
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

    def serves_slowly(self, member, request):
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


def goes_on(round, unheard):
    """There are enough members."""
    return False


@pytest.fixture
def pulling_from(tmp_path):
    """Site a asks those of b and c who do something; a puller and the question."""
    membership = federation(tmp_path).membership
    journal = Journal(tmp_path / "log.jsonl")

    def made(policy, refuse=lambda message: None, watch=lambda _: None, hold=goes_on, asked="bc", **does):
        records, recovery = Records(journal, Metrics(), Ledger()), Recovery(tmp_path / "recovery.jsonl")
        puller = Puller(Peers(membership, **does), records, recovery, watch, hold)
        senders = [membership.number(id) for id in does if id in asked]
        demand = Demand(3, senders, MessageForm(MESSAGE), refuse, 10, policy)
        return puller, lambda: puller.pull(membership, 0, demand)

    yield made
    journal.close()


def test_a_site_that_no_neighbour_admits_is_told_so_at_once(pulling_from):
    _, pull = pulling_from(Patient(LIMITS), b="denies", c="denies")
    with pytest.raises(ShutOutError):
        pull()


@pytest.mark.parametrize("other", ["is_not_ready", "is_dead", "has_another_list_three_times"])
def test_one_neighbour_alone_does_not_shut_a_site_out(pulling_from, other):
    puller, pull = pulling_from(Patient(LIMITS), asked="b", b="denies", c=other)
    assert pull() == {}
    assert puller._records.ledger.of("b").refused == {"not-admitted": 1}


def test_a_site_with_one_neighbour_asks_another_member_whether_it_is_shut_out(pulling_from):
    puller, pull = pulling_from(Patient(LIMITS), asked="b", b="denies", c="denies")
    with pytest.raises(ShutOutError):
        pull()
    assert puller._links.calls == {"b": 1, "c": 1}


def test_what_was_heard_is_counted(pulling_from):
    puller, pull = pulling_from(Patient(LIMITS), b="serves", c="serves")
    pull()
    size = MessageForm(MESSAGE).size
    entries = [puller._records.ledger.of(id) for id in "bc"]
    assert [(entry.heard, entry.bytes, entry.missed) for entry in entries] == [(1, size, 0)] * 2
    assert (puller._records.metrics.heard._value.get(), puller._records.metrics.bytes._value.get()) == (2, 2 * size)


def test_one_that_does_not_admit_this_site_is_not_waited_for(pulling_from):
    puller, pull = pulling_from(Patient(LIMITS), b="serves", c="denies")
    assert list(pull()) == [1]
    entry = puller._records.ledger.of("c")
    assert (entry.refused, entry.late, entry.missed) == ({"not-admitted": 1}, 0, 0)
    assert puller._records.metrics.misses._value.get() == 0


@pytest.mark.parametrize("late", ["is_not_ready_before_another", "is_dead_before_another"])
def test_one_that_comes_late_leaves_its_place_to_the_others(pulling_from, monkeypatch, late):
    monkeypatch.setattr(pulling, "MOST_CALLS", 1)
    _, pull = pulling_from(Patient(Limits(deadline=20)), b=late, c="serves")
    assert sorted(pull()) == [1, 2]


def test_one_that_never_answers_takes_no_place(pulling_from, monkeypatch):
    monkeypatch.setattr(pulling, "MOST_CALLS", 1)
    limits = Limits(deadline=20, floor=20, grace=0.1)
    _, pull = pulling_from(Brisk(limits), b="answers_nobody", c="serves_and_breaks_the_silence")
    assert list(pull()) == [2]


def pass_when(monkeypatch, happened):
    """Time stands still until something has happened; then every wait is over."""
    monkeypatch.setattr(pulling, "time", SimpleNamespace(monotonic=lambda: 1e6 if happened() else 0.0))


def test_one_whose_message_is_on_its_way_has_not_missed_and_is_waited_for_longer(pulling_from, monkeypatch):
    monkeypatch.setattr(pulling, "FIRST_CHUNK", 16)
    brisk = Brisk(Limits(deadline=600, floor=0.3, grace=0.1))
    puller, pull = pulling_from(brisk, b="serves_the_beginning", c="serves_the_beginning")
    pass_when(monkeypatch, lambda: min(puller._links.calls[id] for id in "bc") == 2)
    assert pull() == {}
    puller._links.silence.set()
    assert brisk.misses == {}
    assert brisk.longest == pytest.approx(0.6)
    assert puller._records.ledger.of("b").late == 1


def test_after_a_wait_that_brought_nothing_little_is_asked_for_first(pulling_from):
    brisk = Brisk(Limits(deadline=600, floor=0.1, grace=0.1))
    puller, pull = pulling_from(brisk, b="answers_nobody")
    peers = puller._links
    assert pull() == {}
    peers.silence.set()
    peers.does["b"] = "serves_and_notes_how_much_is_asked_for"
    brisk.usual = 60
    assert list(pull()) == [1]
    assert peers.lengths == [pulling.SMALLEST_CHUNK]


def test_what_a_connection_does_not_carry_in_the_time_of_a_call_is_not_asked_for_again(pulling_from, monkeypatch):
    monkeypatch.setattr(pulling, "SMALLEST_CHUNK", 8)
    monkeypatch.setattr(pulling, "FIRST_CHUNK", 64)
    puller, pull = pulling_from(Patient(LIMITS), b="serves_slowly")
    peers = puller._links
    monkeypatch.setattr(pulling, "time", SimpleNamespace(monotonic=lambda: peers.now))
    for _ in range(2):
        assert list(pull()) == [1]
    assert (peers.lengths[0], set(peers.lengths[1:])) == (64, {32})


def test_a_fast_connection_is_asked_for_more_and_more_at_a_time():
    assert [pulling.next_chunk(1 << 18, seconds) for seconds in (0.1, 2.4, 2.6, 9.0)] == [1 << 19] * 2 + [1 << 18] * 2


@pytest.mark.parametrize(("limit", "most"), [(1 << 22, 1 << 22), (1 << 20, 1 << 20), (3 << 19, 3 << 19)])
def test_chunks_grow_up_to_what_the_list_allows(limit, most, tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "MESSAGE", {"model": {"w": torch.ones(1, 3 << 20)}})
    membership = federation(tmp_path, limits=Limits(chunk=limit)).membership
    journal, peers = Journal(tmp_path / "log.jsonl"), Peers(membership, b="serves_and_notes_how_much_is_asked_for")
    records = Records(journal, Metrics(), Ledger())
    puller = Puller(peers, records, Recovery(tmp_path / "recovery.jsonl"), lambda _: None, goes_on)
    demand = Demand(3, [1], MessageForm(MESSAGE), lambda message: None, 10, Patient(LIMITS))
    assert list(puller.pull(membership, 0, demand)) == [1]
    journal.close()
    assert (peers.lengths[:2], max(peers.lengths)) == ([1 << 18, 1 << 19], most)


def test_an_equivocation_is_noticed_after_a_restart_without_a_log(pulling_from, tmp_path):
    puller, pull = pulling_from(Patient(LIMITS), b="serves", c="serves")
    assert sorted(pull()) == [1, 2]
    (tmp_path / "log.jsonl").unlink()
    puller, pull = pulling_from(Patient(LIMITS), b="serves", c="serves_another")
    assert list(pull()) == [1]
    assert puller._records.ledger.of("c").refused == {"equivocation": 1}


def test_one_that_refuses_at_once_leaves_the_others_their_time(pulling_from):
    _, pull = pulling_from(Brisk(LIMITS), b="denies", c="is_dead_for_a_few_calls")
    assert list(pull()) == [2]


def test_a_check_that_fails_is_a_refusal_and_nobody_is_waited_for(pulling_from, tmp_path):
    puller, pull = pulling_from(Patient(LIMITS), refuse=lambda message: message["absent"], b="serves", c="serves")
    assert pull() == {}
    assert puller._records.ledger.of("c").refused == {"unusable": 1}
    assert "KeyError: 'absent'" in (tmp_path / "log.jsonl").read_text()


def test_a_late_message_may_be_accepted_while_old_digests_are_dropped(pulling_from, tmp_path):
    class Watched(dict):
        """Digests that a late pull adds to, if it may, while somebody reads them."""

        def items(self):
            assert recovery._lock.locked()
            return super().items()

        def setdefault(self, *given):
            assert recovery._lock.locked()
            return super().setdefault(*given)

    puller, pull = pulling_from(Patient(LIMITS), b="serves")
    recovery = puller._recovery
    recovery._digests = Watched()
    assert list(pull()) == [1]
    recovery.commit(oldest=3)
    assert [origin.round for origin in recovery._digests] == [3]
    recovery.commit(oldest=4)
    assert recovery._digests == {}


def test_the_log_says_once_why_a_peer_refuses_this_site(pulling_from, tmp_path):
    puller, pull = pulling_from(Patient(LIMITS), b="has_another_list_three_times")
    assert list(pull()) == [1]
    told = [event for event in lines(tmp_path / "log.jsonl") if event["event"] == "refused"]
    ours = puller._links.membership.digest.hex()[:16]
    assert [(event["peer"], event["side"], event["reason"]) for event in told] == [("b", "callee", "other-membership")]
    assert told[0]["details"] == f"its list is {b'o'.hex() * 8}, ours {ours}"


def test_the_log_says_who_was_waited_for_in_vain_and_how_long(pulling_from, tmp_path):
    puller, pull = pulling_from(Brisk(LIMITS), b="serves", c="is_dead")
    for _ in range(3):
        assert list(pull()) == [1]
    missed = [event for event in lines(tmp_path / "log.jsonl") if event["event"] == "missed"]
    assert [event["peers"] for event in missed] == [["c"]] * 3
    assert all(0 <= event["granted"] <= 0.1 + 1e-6 for event in missed)
    assert all(event["waited"] >= event["granted"] for event in missed)
    assert puller._records.ledger.of("c").missed == 3


def test_what_is_noticed_while_waiting_ends_it(pulling_from):
    class NoticedError(Exception):
        pass

    def notice(round):
        raise NoticedError(round)

    _, pull = pulling_from(Patient(LIMITS), watch=notice, b="serves", c="is_dead")
    with pytest.raises(NoticedError, match="3"):
        pull()
    pulls = [thread for thread in threading.enumerate() if thread.name == "facade-pull-2"]
    for thread in pulls:
        thread.join(10)
    assert not any(thread.is_alive() for thread in pulls)


def test_nobody_goes_on_alone_while_too_few_are_there_and_who_is_back_has_all_its_time(pulling_from):
    paused = []

    def hold(round, unheard):
        if paused or not unheard:
            return False
        paused.append((round, set(unheard)))
        puller._links.does["b"] = "serves"
        return True

    brisk = Brisk(Limits(deadline=600, floor=0.1, grace=0.1))
    puller, pull = pulling_from(brisk, hold=hold, b="is_dead", c="is_dead")
    assert list(pull()) == [1]
    assert paused == [(3, {"b", "c"})]


def test_a_pause_that_falls_into_a_wait_takes_nothing_of_it(pulling_from, monkeypatch):
    now, paused = [0.0], []

    def hold(round, unheard):
        if paused:
            return False
        paused.append(round)
        now[0] += 1000
        puller._links.does["c"] = "serves"
        return True

    puller, pull = pulling_from(Patient(Limits(deadline=600)), hold=hold, b="serves", c="is_dead")
    monkeypatch.setattr(pulling, "time", SimpleNamespace(monotonic=lambda: now[0]))
    assert sorted(pull()) == [1, 2]
    assert paused == [3]


@pytest.mark.parametrize("other", ["is_beyond", "is_dead"])
def test_a_site_is_behind_when_more_have_left_its_round_than_offer_it(pulling_from, monkeypatch, other):
    puller, pull = pulling_from(Brisk(LIMITS), b="is_beyond", c=other)
    pass_when(monkeypatch, lambda: other == "is_dead" and puller._records.ledger.of("b").gone)
    with pytest.raises(BehindError) as behind:
        pull()
    assert behind.value.round == 5


def test_who_answers_and_has_not_gone_on_keeps_a_site_from_jumping(pulling_from, monkeypatch):
    puller, pull = pulling_from(Brisk(LIMITS), b="is_far_beyond", c="is_not_ready")
    pass_when(monkeypatch, lambda: puller._records.ledger.of("b").gone and puller._links.calls["c"] > 1)
    assert pull() == {}


def test_a_suspect_that_holds_the_call_is_not_outvoted_before_it_has_answered(pulling_from, monkeypatch):
    brisk = Brisk(LIMITS, misses={"c": 2})
    watched = []
    puller, pull = pulling_from(brisk, b="is_far_beyond", c="is_training", watch=watched.append)

    def go_on(round):
        watched.append(round)
        puller._links.silence.set()

    puller._watch = go_on
    pass_when(monkeypatch, lambda: puller._records.ledger.of("b").gone)
    assert pull() == {}
    assert watched, "its time was over, and it was waited for"


def test_one_that_has_left_the_round_is_missing_while_another_offers_it(pulling_from, tmp_path):
    puller, pull = pulling_from(Patient(LIMITS), b="is_far_beyond", c="serves")
    assert list(pull()) == [2]
    entry = puller._records.ledger.of("b")
    assert (entry.gone, entry.late, entry.missed) == (1, 0, 0)
    gone = [event for event in lines(tmp_path / "log.jsonl") if event["event"] == "gone"]
    assert [(event["round"], event["peer"]) for event in gone] == [(3, "b")]


@pytest.mark.parametrize(("other", "round"), [("is_far_beyond", 10), ("is_beyond", 5)])
def test_nobody_is_followed_beyond_the_last_round_nor_one_beyond_the_others(pulling_from, other, round):
    _, pull = pulling_from(Patient(LIMITS), b="is_far_beyond", c=other)
    with pytest.raises(BehindError) as behind:
        pull()
    assert behind.value.round == round


def test_one_that_has_left_the_round_but_is_not_beyond_it_is_refused(pulling_from):
    puller, pull = pulling_from(Patient(LIMITS), b="is_gone_but_not_beyond", c="is_gone_but_not_beyond")
    assert pull() == {}
    assert [puller._records.ledger.of(id).refused for id in "bc"] == [{"malformed-reply": 1}] * 2
