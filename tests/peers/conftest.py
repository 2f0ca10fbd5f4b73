"""Peers that answer a pull as they like, with no network between."""

import hashlib
import threading
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from facade.peers.node import pulling
from facade.peers.node.journal import Journal, Metrics
from facade.peers.node.ledger import Ledger
from facade.peers.node.pulling import Puller
from facade.peers.node.records import Records
from facade.peers.node.recovery import Recovery
from facade.peers.node.round_pulls import Demand
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


def pass_when(monkeypatch, happened):
    """Time stands still until something has happened; then every wait is over."""
    monkeypatch.setattr(pulling, "time", SimpleNamespace(monotonic=lambda: 1e6 if happened() else 0.0))
