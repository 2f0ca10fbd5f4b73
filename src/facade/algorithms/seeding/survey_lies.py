"""What no honest node would say in a survey: a guard drops such messages before they are averaged."""

from __future__ import annotations

import torch
from torch import Tensor

from facade.algorithms.seeding import class_sets
from facade.algorithms.seeding.class_means import MOST_ROWS, by_class, largest_norm
from facade.algorithms.seeding.survey import Calendar, Survey
from facade.core.message_parts import A_LIE, UNLIKELY
from facade.core.turn import Turn

MOST_TIMES, MORE_TIMES = 20.0, 3.0
"""How many times the norm of one's own class means those of others may have, and those of what has changed."""
SPREAD = 0.1
"""By how much averages of nodes may differ before they are the same."""


def implausible(turn: Turn, survey: Survey, bid: dict[str, Tensor], sums: Tensor) -> Tensor:
    """[S, m] UNLIKELY or A_LIE where messages say what no honest node would say, by the bids [S, m, ...] and class sums
    [S, m, room] of those that each node heard: of more rows than are looked at, of samples many times as large as its
    own, of more certainty than so many rows can give. From `refine` on, when nodes take back what they said, class sums
    are only seen to be unlikely: their differences from a node's own are of no samples that there could be."""
    classes, slack, steady = turn.learner.outputs, 1e-5, Calendar(turn.spread).steady(turn.round)
    counts, norms = by_class(sums, classes)
    usual, surest = largest_norm(survey.own, classes).view(-1, 1, 1), MOST_ROWS**0.5 + slack
    by_classes = survey.apart.unsqueeze(1) & class_sets.decide(bid["score"])
    lie = (bid["score"] - class_sets.BEFORE_LOOKS * by_classes).abs() > surest
    said = bid["heard"].abs() / (1 if steady else MORE_TIMES)  # who changes sides takes back what it said
    lie |= (said[:, :, ::2] > 1 + slack).any(2) | (said[:, :, 1::2] > surest).any(2) | (counts.abs().sum(2) > 1 + slack)
    if steady:
        lie |= (counts < -slack).any(2) | (norms > MOST_TIMES * usual * counts.abs() + slack).any(2)
        return torch.where(lie, A_LIE, 0)
    own = survey.average.unsqueeze(1)
    more, apart = by_class(sums - own, classes)
    likely = apart <= usual * (MORE_TIMES * more.abs() + SPREAD * (counts.abs() + own[:, :, :classes].abs())) + slack
    return torch.where(lie, A_LIE, UNLIKELY * ~likely.all(2))
