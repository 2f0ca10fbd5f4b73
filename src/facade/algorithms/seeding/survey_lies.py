"""What no honest node would say in a survey: a guard drops such messages before they are averaged."""

from __future__ import annotations

import torch
from torch import Tensor

from facade.algorithms.seeding import class_sets
from facade.algorithms.seeding.class_means import MOST_ROWS, by_class, largest_norm
from facade.algorithms.seeding.survey import NOBODY, Calendar, Survey
from facade.core.message_parts import A_LIE, UNCHECKED
from facade.core.turn import Turn

MOST_TIMES = 20.0
"""How many times the norm of one's own class means those of others may have."""
CHANGES = 3.0
"""How many times as much a node may say that takes back what it said and says something else."""


def implausible(turn: Turn, survey: Survey, bid: dict[str, Tensor], sums: Tensor) -> Tensor:
    """[S, m] A_LIE where messages say what no honest node would say, by the bids [S, m, ...] and the class sums
    [S, m, room] of those that each node heard: of more rows than are looked at, of samples many times as large as its
    own, of more certainty than so many rows can give, or that they know of no bid, not even their own. What is no lie
    is UNCHECKED while groups are formed: the class sums of a group that few have joined are next to nothing, and nodes
    may take back what they said."""
    classes, slack, calendar = turn.learner.outputs, 1e-5, Calendar(turn.spread)
    steady = calendar.steady(turn.round)
    counts, norms = by_class(sums, classes)
    surest = MOST_ROWS**0.5 + slack
    by_classes = survey.apart.unsqueeze(1) & class_sets.decide(bid["score"])
    lie = (bid["score"] - class_sets.BEFORE_LOOKS * by_classes).abs() > surest
    if turn.round >= turn.spread:
        lie |= bid["origin"] == NOBODY
    times = 1.0 if steady else CHANGES
    said, rows = bid["heard"].abs() / times, counts.abs().sum(2) / times
    lie |= (said[:, :, ::2] > 1 + slack).any(2) | (said[:, :, 1::2] > surest).any(2) | (rows > 1 + slack)
    if steady:
        largest = MOST_TIMES * largest_norm(survey.own, classes).view(-1, 1, 1)
        lie |= (counts < -slack).any(2) | (norms > largest * counts.abs() + slack).any(2)
    telling = turn.round < turn.spread or calendar.seeks(turn.round)
    return torch.where(lie, A_LIE, 0 if telling else UNCHECKED)
