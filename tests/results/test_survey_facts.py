"""Which rounds a survey took and what came of it, in words."""

import pytest

from facade.runs.survey_facts import survey_in_words, survey_of


def rows(*found, worth=None, decided=99):
    return [
        {"round": at, "heads_found": heads, "heads_worth": worth if at > decided else None}
        for at, heads in enumerate(found, 1)
    ]


@pytest.mark.parametrize(
    ("noted", "words"),
    [
        (rows(0, 0, 0), "was not over: nodes kept heads of their own. Train longer"),
        (rows(0, 0, 1, 1), "In rounds 1 to 2 nodes trained heads of their own and found no groups"),
        (rows(0, 0, 3, 3), "found 3 groups that differ in looks. The run ended before"),
        (rows(0, 2, 2, 2, worth=0.4, decided=3), "There a head for each lowers the loss by 0.40 nats"),
        (
            rows(0, 2, 2, 2, worth=0.0, decided=1),
            "In rounds 1 to 1 nodes trained heads of their own and found 2 groups by",
        ),
        (
            rows(0, 2, 2, 1, 1, worth=-0.01, decided=3),
            "by 0.00 nats in the mean over groups, less than 0.07: after round 3",
        ),
    ],
)
def test_a_sentence_says_what_the_rounds_were_spent_on(noted, words):
    facts = survey_of(noted)
    assert words in survey_in_words(facts)
    assert survey_in_words(vars(facts)) == survey_in_words(facts)


def test_runs_without_a_survey_have_none():
    assert survey_of([{"round": 1, "choice": 0}]) is None
