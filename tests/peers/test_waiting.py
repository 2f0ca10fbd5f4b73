import statistics

import pytest

from facade.peers.node.presence import Presence
from facade.peers.node.waiting import HOPELESS, Brisk, Patient, Wait
from facade.peers.trust.membership import Limits


def test_patient_waits_for_everybody_and_brisk_gives_grace_when_half_have_come():
    limits = Limits(deadline=600, floor=5, grace=1)
    wait = Wait(100.0, set("abcd"))
    patient, brisk = Patient(limits), Brisk(limits)
    assert (patient.until(wait), brisk.until(wait)) == (700.0, 105.0)
    wait.came("a", 101.0)
    assert brisk.until(wait) == 105.0
    wait.came("b", 102.0)
    assert (patient.until(wait), brisk.until(wait), wait.latest) == (700.0, 103.0, 102.0)


def waited(heard="", missed="", seconds=0.0, **more):
    """A wait that is over: who was heard, all after so many seconds, and who was not."""
    wait = Wait(100.0, {*heard, *missed}, **more)
    for peer in heard:
        wait.came(peer, 100.0 + seconds)
    return wait


def test_who_missed_twice_is_waited_for_one_second_until_heard_again():
    brisk = Brisk(Limits(deadline=600, floor=5, grace=1))
    for _ in range(2):
        brisk.learn(waited("b", "a", 3.0))
    assert brisk.until(Wait(100.0, {"a"})) == 101.0
    assert brisk.until(Wait(100.0, {"a", "b"})) == 109.0
    brisk.learn(waited("ab", "", 3.0))
    assert brisk.until(Wait(100.0, {"a"})) == 109.0


def test_waiting_in_vain_does_not_make_the_next_wait_longer():
    brisk = Brisk(Limits(deadline=600, floor=5, grace=1))
    brisk.learn(waited("a", "", 3.0))
    for _ in range(9):
        brisk.learn(waited("", "b"))
    assert brisk.until(Wait(100.0, {"a", "b"})) == 109.0


def test_where_every_message_takes_longer_than_the_floor_brisk_learns_to_wait_for_it():
    brisk = Brisk(Limits(deadline=600, floor=5, grace=1))
    brisk.trained(0.5)
    waits = []
    for _ in range(5):
        wait = Wait(100.0, {"a", "b"})
        waits.append(brisk.until(wait) - wait.started)
        wait.answered, wait.sending = {"a", "b"}, {"a", "b"}
        if waits[-1] >= 8:
            wait.came("a", 108.0)
            wait.came("b", 108.0)
        brisk.learn(wait)
    assert waits[:2] == pytest.approx([5, 10])
    assert (min(waits[1:]) > 8, max(waits) < 24, brisk.misses) == (True, True, {})


def test_a_wait_that_was_too_short_grows_to_the_deadline_and_no_further():
    brisk = Brisk(Limits(deadline=60, floor=5, grace=1))
    for _ in range(9):
        brisk.learn(waited("a", "bcd", 0.1, sending={"b"}))
    assert brisk.longest == pytest.approx(60)
    assert sorted(brisk.misses) == ["c", "d"]


def test_one_slow_line_among_many_makes_nobody_wait_longer():
    brisk = Brisk(Limits(deadline=600, floor=5, grace=1))
    for _ in range(9):
        brisk.learn(waited("abc", "d", 0.1, sending={"d"}))
    assert (brisk.longest, brisk.misses) == (5, {})


def test_where_nobody_has_trained_as_fast_the_wait_grows_but_those_who_are_late_have_missed():
    brisk = Brisk(Limits(deadline=600, floor=5, grace=1))
    brisk.learn(waited("", "ab", answered={"a", "b"}))
    assert (brisk.longest, brisk.misses) == (10, {"a": 1, "b": 1})


def test_one_that_refuses_does_not_start_the_clock_for_the_others():
    brisk = Brisk(Limits(deadline=600, floor=5, grace=1))
    wait = Wait(100.0, set("ab"))
    wait.lose("a", 100.1)
    assert brisk.until(wait) == 105.0
    brisk.learn(wait)
    assert brisk.misses == {"a": 1, "b": 1}


def test_those_who_refuse_are_not_among_the_half_that_must_have_come():
    brisk = Brisk(Limits(deadline=600, floor=5, grace=1))
    wait = Wait(100.0, set("abcd"))
    wait.came("a", 101.0)
    wait.lose("b", 102.0)
    assert brisk.until(wait) == 105.0
    wait.lose("c", 103.0)
    assert (brisk.until(wait), wait.latest) == (104.0, 101.0)


def test_the_final_exchange_has_the_deadline_for_those_who_answer():
    brisk = Brisk(Limits(deadline=600, floor=5, grace=1, linger=60))
    brisk.learn(waited("abcd", "", 0.1))
    wait = Wait(100.0, set("abcd"), final=True)
    assert brisk.until(wait) == 160.0, "nobody can be reached"
    wait.answered = {"a"}
    for peer in "bcd":
        wait.came(peer, 101.0)
    assert brisk.until(wait) == 700.0
    brisk.misses = {"a": 2}
    assert brisk.until(wait) == 101.0


def test_where_training_takes_minutes_brisk_waits_in_proportion():
    brisk = Brisk(Limits(deadline=600, floor=5, grace=1))
    brisk.trained(120.0)
    wait = Wait(1000.0, set("abcd"))
    assert brisk.until(wait) == 1360.0
    for peer in "ab":
        wait.came(peer, 1001.0)
    assert brisk.until(wait) == 1031.0
    for _ in range(2):
        brisk.learn(waited("ab", "c", 1.0))
    assert brisk.until(Wait(1000.0, {"c"})) == 1030.0
    brisk.trained(220.0)
    assert (brisk.pace, brisk.grace) == (140.0, 35.0)
    for _ in range(20):
        brisk.trained(600.0)
    assert brisk.until(Wait(1000.0, set("abd"))) == 1600.0


def test_where_training_takes_moments_brisk_waits_as_its_limits_say():
    brisk = Brisk(Limits(deadline=600, floor=5, grace=1))
    brisk.trained(1.5)
    wait = Wait(100.0, set("abcd"))
    assert (brisk.until(wait), brisk.grace) == (105.0, 1.0)


def extra_seconds(brisk, rounds, dead="d"):
    """Rounds in which all come within 20 ms but one; the seconds that it is waited for when the others have come."""
    extra = []
    for _ in range(rounds):
        wait = Wait(100.0, {"a", "b", dead})
        wait.came("a", 100.01)
        wait.came("b", 100.02)
        extra.append(max(0.0, brisk.until(wait) - wait.latest))
        brisk.learn(wait)
    return extra


@pytest.mark.parametrize("training", [0.1, 3.0, 12.0])
def test_a_silent_site_costs_nothing_after_ten_misses_and_is_waited_for_as_soon_as_it_answers(training):
    presence = Presence(lambda: 100.0)
    brisk = Brisk(Limits(), presence)
    brisk.trained(training)
    presence.note_silence("d", since=100.0)
    extra = extra_seconds(brisk, 30)
    assert extra == sorted(extra, reverse=True)
    assert extra[0] == pytest.approx(max(1.0, training / 4), abs=0.03)
    assert extra[HOPELESS:] == [0.0] * 20
    assert statistics.median(extra[HOPELESS:]) <= 0.05 * training
    presence.note_answer("d")
    longest = max(5.0, 3 * training)
    assert extra_seconds(brisk, 3) == pytest.approx([longest - 0.02, extra[0], extra[0] - 0.02], abs=1e-6)
    assert brisk.misses == {"d": 3}


def test_one_that_comes_back_has_time_to_catch_up_once_and_only_after_ten_misses():
    presence = Presence(lambda: 100.0)
    brisk = Brisk(Limits(grace=1, floor=5), presence)
    for misses, extra in ((HOPELESS - 1, 1.0), (HOPELESS, 4.98)):
        presence.note_silence("d", since=101.0)
        extra_seconds(brisk, misses)
        presence.note_answer("d")
        assert extra_seconds(brisk, 1) == pytest.approx([extra])
        brisk.learn(waited("d"))
    presence.note_silence("d", since=101.0)
    extra_seconds(brisk, HOPELESS)
    presence.note_call("d")
    assert extra_seconds(brisk, 1) == pytest.approx([1.0]), "it calls, but does not answer yet"
    presence.note_answer("d")
    assert extra_seconds(brisk, 1) == pytest.approx([4.98])


def test_a_site_that_is_slow_and_answers_has_the_grace_for_ever():
    brisk = Brisk(Limits(grace=1))
    assert extra_seconds(brisk, 50)[-1] == pytest.approx(0.98)


def test_an_answer_of_one_that_was_never_silent_makes_nobody_wait_longer_for_it():
    presence = Presence(lambda: 100.0)
    brisk = Brisk(Limits(deadline=600, floor=5, grace=1), presence)
    for _ in range(3):
        brisk.learn(waited("b", "a"))
        presence.note_answer("a")
        brisk.until(Wait(100.0, {"a"}))
    assert brisk.misses == {"a": 3}


def test_where_all_are_silent_nobody_is_waited_for_and_who_answers_is_again():
    presence = Presence(lambda: 100.0)
    brisk = Brisk(Limits(deadline=600, floor=5, grace=1), presence)
    for _ in range(HOPELESS):
        brisk.learn(waited("", "abc"))
    for peer in "abc":
        presence.note_silence(peer, since=100.0)
    assert brisk.until(Wait(200.0, set("abc"))) == 200.0
    presence.note_answer("b")
    assert brisk.until(Wait(200.0, set("abc"))) == 205.0
    assert brisk.missing == {"a", "c"}


def test_a_wait_that_is_begun_again_gives_all_their_time():
    brisk = Brisk(Limits(deadline=600, floor=5, grace=1))
    wait = Wait(100.0, set("abc"))
    wait.came("a", 100.5)
    wait.begin_again(200.0)
    assert brisk.until(wait) == 205.0
    wait.came("b", 202.0)
    assert brisk.until(wait) == 203.0
    wait.begin_again(300.0)
    assert (brisk.until(wait), wait.latest) == (301.0, 300.0)
