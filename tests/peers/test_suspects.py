"""Whom several sites have reason to suspect."""

import pytest

from facade.peers.after.suspects import Suspect, Word, suspects, unused_share

EIGHT = [f"n{i}" for i in range(8)]


def words(unused, at_end=(), came=40):
    """What eight sites say of each other: `unused` (site, member) -> messages not used; `at_end` those of the end."""
    return [
        Word(site, member, came, unused.get((site, member), 0), (site, member) in at_end)
        for site in EIGHT
        for member in EIGHT
        if site != member
    ]


def about(member, unused, sites=EIGHT):
    return {(site, member): unused for site in sites if site != member}


def test_who_is_not_used_by_anybody_is_first():
    found = suspects(words(about("n2", 40) | about("n5", 8)))
    assert found == [Suspect("n2", 1.0, 7, False), Suspect("n5", pytest.approx(0.2), 7, False)]


def test_one_message_in_the_final_exchange_is_enough_if_all_dropped_it():
    pairs = about("n2", 1)
    assert suspects(words(pairs, at_end=pairs)) == [Suspect("n2", 1.0, 7, True)]


def test_what_a_single_site_says_makes_nobody_a_suspect():
    slander = {("n0", member): 40 for member in EIGHT[1:]}
    assert suspects(words(slander, at_end=slander)) == []


def test_a_member_that_ruins_the_head_of_two_sites_is_a_suspect_for_their_word():
    assert suspects(words(about("n2", 40, ["n6", "n7"]))) == [Suspect("n2", 1 / 6, 2, False)]


def test_where_much_of_everybody_is_dropped_nobody_stands_out():
    everybody = {pair: 12 for member in EIGHT for pair in about(member, 12)}
    assert suspects(words(everybody)) == []
    assert [each.id for each in suspects(words(everybody | about("n3", 39)))] == ["n3"]


def test_nobody_is_a_suspect_where_nothing_came_or_one_site_alone_heard_it():
    assert suspects([]) == []
    assert suspects([Word("a", "b", 0, 0, False)]) == []
    assert suspects([Word("a", "b", 9, 9, True), Word("b", "a", 9, 0, False)]) == []


def test_every_site_counts_alike_in_a_share_whatever_numbers_it_claims():
    assert unused_share([Word("a", "b", 30, 3, False), Word("c", "b", 10, 3, True)]) == pytest.approx(0.2)
    slander = Word("d", "b", 1, 1 << 50, True)
    assert unused_share([Word("a", "b", 30, 3, False), Word("c", "b", 10, 1, True), slander]) == pytest.approx(0.4)
    assert unused_share([Word("a", "b", 0, 0, False)]) == 0.0
