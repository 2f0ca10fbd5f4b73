"""What a site does whose neighbours have left the round that it pulls."""

import pytest

from facade.peers.node.journal import lines
from facade.peers.node.round_pulls import BehindError
from facade.peers.node.waiting import Brisk, Patient
from peers.conftest import LIMITS, pass_when


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
