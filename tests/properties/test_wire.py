"""Messages survive the wire, and nothing else that arrives passes for one."""

import hashlib

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from facade.core import tree
from facade.peers.protocol.headers import Kind, Reply, Request, Status
from facade.peers.protocol.refusals import Reason, RefusedError
from facade.peers.protocol.wire import MessageForm, Origin, pack

digests = st.binary(min_size=32, max_size=32)
origins = st.builds(Origin, digests, st.integers(0, 2**32 - 1), st.integers(0, 2**63 - 1))
values = st.floats(-1, 1, width=32)


@st.composite
def messages(draw):
    """A model of two weights, and a bid."""
    weights = {name: torch.tensor([draw(st.lists(values, min_size=3, max_size=3))]) for name in ("a", "b.weight")}
    return {"model": weights, "bid": {"origin": torch.tensor([draw(st.integers(-1, 9))])}}


@given(messages(), messages(), origins)
def test_a_message_comes_back_as_it_was_sent(own, theirs, origin):
    content = pack(origin, theirs)
    form = MessageForm(own, frozenset({"bid"}))
    assert form.size == len(content)
    arrived = form.unpack(content, hashlib.sha256(content).digest(), origin)
    assert tree.digests(arrived, 1) == tree.digests(theirs, 1)


@given(messages(), origins, st.data())
def test_a_message_with_one_other_byte_is_refused(own, origin, data):
    content = pack(origin, own)
    at = data.draw(st.integers(0, len(content) - 1))
    other = bytearray(content)
    other[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(RefusedError) as refused:
        MessageForm(own).unpack(bytes(other), hashlib.sha256(content).digest(), origin)
    assert refused.value.reason is Reason.WRONG_DIGEST


@given(messages(), origins, origins)
def test_a_message_of_another_origin_is_refused(own, origin, other):
    if origin == other:
        return
    content = pack(other, own)
    with pytest.raises(RefusedError) as refused:
        MessageForm(own).unpack(content, hashlib.sha256(content).digest(), origin)
    assert refused.value.reason in {Reason.OTHER_FEDERATION, Reason.OTHER_SENDER, Reason.OTHER_ROUND}


@given(messages(), origins, st.binary(max_size=600))
def test_whatever_else_arrives_is_refused_and_harms_nothing(own, origin, content):
    with pytest.raises(RefusedError):
        MessageForm(own).unpack(content, hashlib.sha256(content).digest(), origin)


longs = st.integers(0, 2**63 - 1)
requests = st.builds(
    Request, st.sampled_from(Kind), digests, st.integers(0, 2**32 - 1), longs, longs, st.integers(0, 2**32 - 1)
)


@given(requests)
def test_a_request_comes_back_as_it_was_asked(request):
    assert Request.parse(request.packed()) == request


@given(st.sampled_from(Status), longs, st.sampled_from(Reason), longs, digests, st.binary(max_size=64))
def test_a_reply_comes_back_as_it_was_given(status, round, reason, total, digest, chunk):
    reply = Reply(status, round, reason, total, digest, chunk if status is Status.HERE else b"")
    assert Reply.parse(reply.packed()) == reply


@given(st.binary(max_size=200), st.sampled_from([Request, Reply]))
def test_other_bytes_are_a_header_that_packs_to_the_same_or_refused(content, kind):
    try:
        parsed = kind.parse(content)
    except RefusedError:
        return
    assert parsed.packed() == content
