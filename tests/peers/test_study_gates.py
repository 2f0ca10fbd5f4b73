"""The way into a site that plays two studies, without a network: who is admitted, to which of them a call gets, and
what members of one can see of the other."""

import dataclasses

import pytest

from facade.peers.protocol.headers import Kind, Request, Status
from facade.peers.protocol.refusals import Reason, RefusedError
from facade.peers.protocol.study_gates import MOST_CALLS, NotPlayedError
from facade.peers.trust import identity
from facade.peers.trust.membership import Membership
from peers.makers import federation, gate, together

OTHERS_LIST = b"o" * 32
"""The digest of a list that this site has never seen."""


@dataclasses.dataclass
class Study:
    """A federation, and site a's gate to it, with how often a request was parsed."""

    made: object
    gate: object

    def fingerprint(self, id):
        return identity.fingerprint(self.made.certificate(id))

    def probe(self, caller=1):
        return Request(Kind.PROBE, self.made.membership.digest, caller, 0).packed()

    def callers(self):
        return self.made.membership.members


@pytest.fixture
def studies(tmp_path):
    """Two studies of other members; the second one has site b of the first as well."""
    made = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        made.append(federation(tmp_path / name))
    first, second = made
    listed = second.membership.model_dump(by_alias=True)
    listed["members"][1] = first.membership.members[1].model_dump()
    second.membership = Membership.model_validate(listed)
    opened = [Study(one, gate(one, one.base)) for one in made]
    yield opened
    for study in opened:
        study.gate.journal.close()


@pytest.fixture
def gates(studies):
    return together(*((study.gate, study.callers) for study in studies))


def test_a_member_gets_to_its_own_study_by_the_list_that_it_names(studies, gates):
    first, second = studies
    first.gate.round, second.gate.round = 3, 5
    of_both = gates.admit(first.fingerprint("b"))
    assert of_both.studies == 2
    assert [gates.answer(of_both, study.probe()).round for study in studies] == [3, 5]
    of_second = gates.admit(second.fingerprint("c"))
    reply = gates.answer(of_second, second.probe(2))
    assert (of_second.studies, reply.status, reply.round) == (1, Status.NOT_YET, 5)


@pytest.mark.parametrize("asked", [1, 0])
def test_who_names_the_list_of_a_study_of_others_is_refused_before_anything_else_is_parsed(
    asked, studies, gates, monkeypatch
):
    own, others = studies[1 - asked], studies[asked]
    caller = gates.admit(own.fingerprint("c"))
    parsed = []
    monkeypatch.setattr(Request, "parse", lambda content: parsed.append(content))
    calls = [Request(Kind.PULL, digest, 2, 0, 0, 100) for digest in (others.made.membership.digest, OTHERS_LIST)]
    to_another, to_nobody = [gates.answer(caller, call.packed()) for call in calls]
    assert (to_another.status, to_another.reason, to_another.chunk) == (Status.REFUSED, Reason.OTHER_MEMBERSHIP, b"")
    assert to_another == to_nobody, "that the list is one of this site's cannot be seen"
    assert to_another.digest == own.made.membership.digest
    assert (parsed, others.gate.journal.refusals, own.gate.journal.refusals) == ([], {}, {"other-membership": 2})


def test_who_is_in_both_learns_of_no_list_where_it_names_none_of_them(studies, gates):
    caller = gates.admit(studies[0].fingerprint("b"))
    reply = gates.answer(caller, Request(Kind.PROBE, OTHERS_LIST, 1, 0).packed())
    assert (reply.reason, reply.digest) == (Reason.OTHER_MEMBERSHIP, bytes(32))
    assert reply.why(OTHERS_LIST) == f"it takes part in nothing by our list, {OTHERS_LIST.hex()[:16]}"


def test_a_stranger_to_all_studies_is_turned_away_and_what_one_has_against_a_member_holds_there_alone(studies, gates):
    first, second = studies
    with pytest.raises(RefusedError) as refused:
        gates.admit("0" * 64)
    assert refused.value.reason is Reason.STRANGER
    first.gate.ignores = {"b", "c"}.__contains__
    assert gates.admit(first.fingerprint("b")).studies == 1
    with pytest.raises(RefusedError) as refused:
        gates.admit(first.fingerprint("c"))
    assert refused.value.reason is Reason.IGNORED
    assert (first.gate.journal.refusals, second.gate.journal.refusals) == ({"stranger": 1, "ignored": 1}, {})


def test_the_same_id_in_two_studies_is_two_callers_with_places_of_their_own(studies, gates):
    callers = [gates.admit(study.fingerprint("c")) for study in studies]
    assert callers[0].key != callers[1].key
    for caller in callers:
        assert [gates.take_place(caller) for _ in range(MOST_CALLS + 1)] == [True] * MOST_CALLS + [False]
    gates.free_place(callers[0])
    assert [gates.take_place(caller) for caller in callers] == [True, False]


def test_a_member_of_two_studies_has_the_places_of_two(studies, gates):
    caller = gates.admit(studies[0].fingerprint("b"))
    taken = [gates.take_place(caller) for _ in range(2 * MOST_CALLS + 1)]
    assert taken == [True] * (2 * MOST_CALLS) + [False]
    assert gates.take_place(caller, "another connection"), "over each connection one in any case"


def test_a_study_that_is_over_or_stopped_looks_to_its_members_as_if_nobody_were_there(studies, gates):
    first, second = studies
    gates.remove(second.gate)
    with pytest.raises(NotPlayedError):  # else it would take itself for a member no more
        gates.admit(second.fingerprint("c"))
    of_both = gates.admit(first.fingerprint("b"))
    with pytest.raises(NotPlayedError):
        gates.answer(of_both, second.probe())
    of_first = gates.admit(first.fingerprint("c"))
    assert gates.answer(of_first, second.probe()).reason is Reason.OTHER_MEMBERSHIP
    assert gates.callers == first.callers()
    gates.add(second.gate, second.callers)
    assert gates.answer(gates.admit(second.fingerprint("c")), second.probe(2)).status is Status.NOT_YET


def test_what_is_no_request_is_refused_as_ever(studies, gates):
    caller = gates.admit(studies[0].fingerprint("b"))
    for content, reason in ((b"x" * 7, Reason.MALFORMED_REQUEST), (b"x" * 2000, Reason.TOO_LONG)):
        assert gates.answer(caller, content).reason is reason
