"""The gate alone, without a network: whom it admits, and what it answers."""

import datetime

import pytest

from facade.peers.protocol.gate import LONGEST_WAIT
from facade.peers.protocol.headers import Kind, Reply, Request, Status
from facade.peers.protocol.refusals import Reason, RefusedError
from facade.peers.trust import identity
from facade.peers.trust.membership import Change, Epochs, Membership, changed
from peers.makers import federation, gate


@pytest.fixture
def made(tmp_path):
    return federation(tmp_path)


@pytest.fixture
def door(made, tmp_path):
    opened = gate(made, tmp_path)
    yield opened
    opened.journal.close()


@pytest.mark.parametrize(("starts", "admitted"), [(-20, False), (-5, True), (5, False)])
def test_a_certificate_is_good_between_its_dates_and_never_else(made, tmp_path, starts, admitted):
    when = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=starts)
    certificate = identity.new_certificate("b", 10, when)[1].decode()
    members = [m.model_dump() | ({"certificate": certificate} if m.id == "b" else {}) for m in made.membership.members]
    made.membership = Membership.model_validate(made.membership.model_dump(by_alias=True) | {"members": members})
    door = gate(made, tmp_path)
    if admitted:
        assert door.admit(identity.fingerprint(certificate)) == "b"
    else:
        with pytest.raises(RefusedError) as refused:
            door.admit(identity.fingerprint(certificate))
        assert refused.value.reason is Reason.EXPIRED
    door.journal.close()


def test_only_a_call_for_the_message_being_made_is_held(made, door):
    waits = {}
    door.outgoing.get = waits.__setitem__
    door.round = 3
    for round in (2, 3, 4, 5, door.last_round):
        reply = door.answer("b", Request(Kind.PULL, made.membership.digest, 1, round, 0, 100).packed())
        assert reply.status is (Status.GONE if round == 2 else Status.NOT_YET)
    held = door.limits.grace / 2
    assert waits == {2: held, 3: held, 4: held, 5: 0.0, door.last_round: 0.0}


@pytest.mark.parametrize("grace", [0.1, 1.0, 30.0])
def test_who_grants_no_more_than_the_grace_is_answered_before_it_ends(made, door, grace):
    waits = {}
    door.outgoing.get = waits.__setitem__
    door.limits = door.limits.model_copy(update={"grace": grace})
    door.answer("b", Request(Kind.PULL, made.membership.digest, 1, 1, 0, 100).packed())
    assert 0 < waits[1] < grace
    assert waits[1] <= LONGEST_WAIT


def test_no_more_than_a_chunk_is_given_at_a_time(made, door):
    door.limits = door.limits.model_copy(update={"chunk": 400})
    for length, reason in ((400, Reason.NONE), (401, Reason.NO_SUCH_CHUNK)):
        request = Request(Kind.PULL, made.membership.digest, 1, 0, 0, length)
        assert door.answer("b", request.packed()).reason is reason


def test_a_member_that_was_removed_is_a_stranger_from_then_on(tmp_path):
    made = federation(tmp_path, "abcd")
    next_list = changed(made.membership, Change(remove=["d"]), 1)
    opened = gate(made, tmp_path)
    opened.epochs = Epochs([made.membership, next_list])
    reply = opened.answer("d", Request(Kind.PROBE, next_list.digest, 3, 2).packed())
    assert (reply.status, reply.reason) == (Status.REFUSED, Reason.STRANGER)
    opened.journal.close()


def test_every_refusal_of_a_call_is_counted(door):
    door.answer("b", Request(Kind.PULL, b"o" * 32, 1, 0, 0, 100).packed())
    assert door.metrics.rejected.labels(Reason.OTHER_MEMBERSHIP.word)._value.get() == 1


def test_who_says_farewell_before_this_site_has_finished_is_not_settled(made, door):
    farewell = Request(Kind.FAREWELL, made.membership.digest, 1, 0).packed()
    door.answer("b", farewell)
    assert (door.farewells, door.settled) == ({"b"}, set())
    door.finish()
    door.answer("b", farewell)
    assert door.settled == {"b"}


def test_a_header_has_one_encoding(made, door):
    for place in (5, 6, 7):
        content = bytearray(Request(Kind.PULL, made.membership.digest, 1, 0, 0, 100).packed())
        content[place] = 1
        assert door.answer("b", bytes(content)).reason is Reason.MALFORMED_REQUEST
    padded = bytearray(Reply(Status.HERE, 1, chunk=b"x").packed())
    padded[6] = 1
    for content in (bytes(padded), Reply(Status.GONE, 1).packed() + b"x"):
        with pytest.raises(RefusedError):
            Reply.parse(content)
