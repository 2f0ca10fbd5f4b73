"""Ten thousand malformed messages per layer, from a member: none is used, none does harm."""

import dataclasses
import gc
import hashlib
import struct
import tracemalloc
from collections import Counter, namedtuple
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from facade.algorithms import ALGORITHMS
from facade.core import tree
from facade.experiment.setup import set_up
from facade.peers.node.pulling import Puller
from facade.peers.node.recovery import Recovery
from facade.peers.node.round_pulls import Demand, Pull
from facade.peers.protocol.headers import LONGEST_REQUEST, Kind, Reply, Request, Status
from facade.peers.protocol.incoming import Incoming
from facade.peers.protocol.refusals import Reason, RefusedError
from facade.peers.protocol.wire import MessageForm, Origin, pack
from peers.makers import federation, gate, tiny

MANY = 10_000
Pair = namedtuple("Pair", "a b")
ORIGIN = Origin(b"m" * 32, 1, 7)
FORM = SimpleNamespace(size=1000, room=lambda: Incoming(1000))


def message(choice=1, scale=1.0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(5)
    core = {"a": torch.randn(1, 30, 20, generator=generator, dtype=dtype) * scale}
    return {"core": core, "head": {"b": torch.randn(1, 20, 10, generator=generator)}, "choice": torch.tensor([choice])}


def refuse(received):
    return None if 0 <= int(received["choice"]) < 2 else "no such head"


def mutated(content, random):
    """Bytes that differ from the content: flipped, cut, lengthened, moved, overwritten."""
    changed = bytearray(content)
    kind = random.integers(5)
    at = int(random.integers(len(changed)))
    if kind == 0:
        changed[at] ^= int(random.integers(1, 256))
    elif kind == 1:
        del changed[at:]
    elif kind == 2:
        changed[at:at] = random.bytes(int(random.integers(1, 40)))
    elif kind == 3:
        changed[at : at + 8] = struct.pack("<d", np.nan)
    else:
        changed[at : at + 16] = random.bytes(16)
    return bytes(changed)


@contextmanager
def little_memory():
    """Inside the with-block, Python's own memory grows by less than 1 MB, and by less than 5 MB at any time."""
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        yield
        gc.collect()
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 1e6
    assert peak - before < 5e6


def accepted(puller, demand, content, digest):
    """What comes of a message, with all that a site does to it."""
    return puller.accept(ORIGIN, demand, demand.form.unpack(content, digest, ORIGIN), digest)


def pulled(come=0, announced=None):
    """A pull of a message of 1000 bytes, of which so many have come."""
    pull = Pull(1, None, announced=announced)
    if come:
        pull.incoming = FORM.room()
        pull.incoming.add(bytes(come))
    return pull


@pytest.fixture
def puller(tmp_path):
    return Puller(None, None, Recovery(tmp_path / "recovery.jsonl"), None, None)


def test_mutated_payloads_are_all_refused_for_a_reason(puller):
    content = pack(ORIGIN, message())
    digest = hashlib.sha256(content).digest()
    demand = Demand(7, [1], MessageForm(message()), refuse, 10, None)
    random, reasons = np.random.default_rng(1), Counter()
    with little_memory():
        for _ in range(MANY):
            changed = mutated(content, random)
            if changed == content:
                continue
            with pytest.raises(RefusedError) as refused:
                accepted(puller, demand, changed, digest)
            reasons[refused.value.reason] += 1
    assert set(reasons) == {Reason.WRONG_SIZE, Reason.WRONG_DIGEST}
    assert accepted(puller, demand, content, digest)["choice"] == 1


def test_payloads_mutated_before_the_digest_was_fixed_never_crash_and_keep_their_form():
    content, random = pack(ORIGIN, message()), np.random.default_rng(2)
    form, outcomes = MessageForm(message()), Counter()
    with little_memory():
        for _ in range(MANY):
            changed = mutated(content, random)
            try:
                received = form.unpack(changed, hashlib.sha256(changed).digest(), ORIGIN)
            except RefusedError as refused:
                outcomes[refused.reason] += 1
            else:  # other finite weights of the right form: poisoning, which no check of form can see
                assert received["core"]["a"].shape == (1, 30, 20)
                assert torch.isfinite(received["core"]["a"]).all()
                outcomes["other weights"] += 1
    assert {Reason.WRONG_SIZE, Reason.NOT_FINITE, Reason.TOO_LARGE} <= set(outcomes)


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (lambda: pack(ORIGIN, message(dtype=torch.float64)), Reason.WRONG_SIZE),
        (lambda: pack(ORIGIN, {"head": message()["head"], **message()}), None),
        (lambda: pack(ORIGIN, {**message(), "core": {"a": torch.randn(1, 20, 30)}}), Reason.WRONG_HEADER),
        (lambda: pack(ORIGIN, {**message(), "core": {"z": torch.randn(1, 30, 20)}}), Reason.WRONG_HEADER),
        (lambda: pack(ORIGIN, message(scale=torch.nan)), Reason.NOT_FINITE),
        (lambda: pack(ORIGIN, message(scale=torch.inf)), Reason.NOT_FINITE),
        (lambda: pack(ORIGIN, message(scale=1e3)), Reason.TOO_LARGE),
        (lambda: pack(ORIGIN, message(choice=2)), Reason.UNUSABLE),
        (lambda: pack(ORIGIN, message(choice=-1)), Reason.UNUSABLE),
        (lambda: pack(Origin(b"m" * 32, 1, 6), message()), Reason.OTHER_ROUND),
        (lambda: pack(Origin(b"m" * 32, 2, 7), message()), Reason.OTHER_SENDER),
        (lambda: pack(Origin(b"o" * 32, 1, 7), message()), Reason.OTHER_FEDERATION),
        (lambda: pack(ORIGIN, message()) + b"more", Reason.WRONG_SIZE),
    ],
)
def test_each_consistent_mistake_has_its_own_reason(sent, reason, puller):
    content = sent()
    demand = Demand(7, [1], MessageForm(message()), refuse, 10, None)
    if reason is None:
        accepted(puller, demand, content, hashlib.sha256(content).digest())
        return
    with pytest.raises(RefusedError) as refused:
        accepted(puller, demand, content, hashlib.sha256(content).digest())
    assert refused.value.reason == reason


@pytest.mark.parametrize(
    "own", [{"momentum": {"a": torch.ones(1, 4)}}, {"a": torch.ones(1, 4)}, Pair(torch.ones(1, 4), torch.ones(1))]
)
def test_every_entry_is_limited_whatever_it_is_called(own):
    large = pack(ORIGIN, tree.map(lambda leaf: leaf * 100, own))
    digest = hashlib.sha256(large).digest()
    with pytest.raises(RefusedError) as refused:
        MessageForm(own).unpack(large, digest, ORIGIN)
    assert refused.value.reason == Reason.TOO_LARGE
    if isinstance(own, dict):
        assert MessageForm(own, frozenset(own)).unpack(large, digest, ORIGIN)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_algorithms_exempt_only_entries_of_their_messages(algorithm):
    setup = set_up(tiny(f"algorithm.name={algorithm}"))
    shard = setup.shard(np.arange(1))
    turn = setup.plan.turn(shard, 0)
    for fields in ({}, {"seeding": "farthest"}) if algorithm in ("facade", "ifca") else ({},):
        made = dataclasses.replace(setup.algorithm, **fields)
        entries = made.message(turn, made.init(shard))
        assert not made.entries_without_weights & {"core", "head", "model"}
        assert made.entries_without_weights <= set(entries) or made.entries_without_weights == {"bid"}


def test_a_second_message_of_the_same_round_is_an_equivocation_and_the_first_stays(puller):
    demand = Demand(7, [1], MessageForm(message()), refuse, 10, None)
    first, second = pack(ORIGIN, message()), pack(ORIGIN, message(scale=0.5))
    accepted(puller, demand, first, hashlib.sha256(first).digest())
    with pytest.raises(RefusedError) as refused:
        accepted(puller, demand, second, hashlib.sha256(second).digest())
    assert refused.value.reason == Reason.EQUIVOCATION
    assert puller._recovery.first_digest(ORIGIN, "another") == hashlib.sha256(first).hexdigest()
    accepted(puller, demand, first, hashlib.sha256(first).digest())


def test_mutated_replies_are_refused_or_say_nothing_new():
    chunk = b"c" * 500
    whole = Reply(Status.HERE, 7, total=1000, digest=b"d" * 32, chunk=chunk)
    random, outcomes = np.random.default_rng(3), Counter()
    with little_memory():
        for _ in range(MANY):
            pull = pulled(500, (1000, b"d" * 32))
            try:
                reply = Reply.parse(mutated(whole.packed(), random))
                if reply.status is Status.HERE:
                    pull.add(reply, FORM, 500)
                    outcomes["taken"] += 1  # its bytes still face the digest
                    assert pull.come <= 1000
            except RefusedError as refused:
                outcomes[refused.reason] += 1
    assert {Reason.MALFORMED_REPLY, Reason.WRONG_SIZE, Reason.EQUIVOCATION} <= set(outcomes)


def test_an_announced_size_that_is_not_the_expected_one_is_refused_before_anything_is_kept():
    pull = pulled()
    with pytest.raises(RefusedError, match="wrong-size"):
        pull.add(Reply(Status.HERE, 7, total=1 << 60, digest=b"d" * 32, chunk=b"x"), FORM, 500)
    assert pull.incoming is None


@pytest.mark.parametrize("bytes_sent", [0, 1, 299, 301, 500])
def test_a_chunk_is_exactly_what_was_asked_for(bytes_sent):
    pull = pulled(200)
    with pytest.raises(RefusedError, match=f"a chunk of {bytes_sent} bytes, 300 were asked for"):
        pull.add(Reply(Status.HERE, 7, total=1000, digest=b"d" * 32, chunk=b"x" * bytes_sent), FORM, 300)
    assert pull.come == 200
    rest = pulled(900)
    rest.add(Reply(Status.HERE, 7, total=1000, digest=b"d" * 32, chunk=b"x" * 100), FORM, 300)
    assert rest.come == 1000


def test_mutated_requests_of_a_member_are_refused_or_honest(tmp_path):
    made = federation(tmp_path)
    door = gate(made, tmp_path)
    good = Request(Kind.PULL, made.membership.digest, 1, 0, 0, 100)
    assert door.answer("b", good.packed()).status is Status.HERE
    random, outcomes = np.random.default_rng(4), Counter()
    door.outgoing.get = lambda of, seconds=0.0, get=door.outgoing.get: get(of)  # no need to wait for rounds
    with little_memory():
        for _ in range(MANY):
            changed = mutated(good.packed(), random)
            reply = door.answer("b", changed)
            outcomes[reply.reason] += 1
            if reply.status is Status.HERE:
                asked = Request.parse(changed)
                assert (asked.caller, asked.membership, asked.round) == (1, made.membership.digest, 0)
    assert {Reason.MALFORMED_REQUEST, Reason.OTHER_MEMBERSHIP, Reason.OTHER_IDENTITY} <= set(outcomes)
    assert {Reason.NO_SUCH_ROUND, Reason.NO_SUCH_CHUNK} <= set(outcomes)
    assert sum(door.journal.refusals.values()) == sum(n for reason, n in outcomes.items() if reason)
    assert door.answer("b", b"x" * (LONGEST_REQUEST + 1)).reason is Reason.TOO_LONG
    door.journal.close()


def test_a_message_survives_the_wire_to_the_bit():
    sent = message()
    content = pack(ORIGIN, sent)
    received = MessageForm(sent).unpack(content, hashlib.sha256(content).digest(), ORIGIN)
    assert torch.equal(received["core"]["a"], sent["core"]["a"])
    assert pack(ORIGIN, {})  # an algorithm that sends nothing
