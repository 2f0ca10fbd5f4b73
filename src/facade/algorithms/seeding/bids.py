"""Max-gossip: nodes agree on the best of their bids, each passing on the best it has heard."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import Tensor

from facade.core.messages import Deliveries, Inbox
from facade.core.sums import waves

Bidders = TypeVar("Bidders", bound=Any)
"""A NamedTuple with `score` [S] float64 and `origin` [S], the node that made the bid, -1 when there is none."""


def best_bids(bidders: Bidders, inbox: Inbox) -> tuple[Bidders, Tensor]:
    """Keep the best of the bids heard and one's own: the highest score, ties to the lower node.
    Also gives the message [S] that made it."""
    scores, origins = inbox.pool["bid"]["score"], inbox.pool["bid"]["origin"]
    best, score, origin = inbox.own.clone(), bidders.score.clone(), bidders.origin.clone()
    for rows, messages, _ in waves(*_heard(inbox)):
        new, by = scores[messages], origins[messages]
        own, held = score[rows], origin[rows]
        better = (by >= 0) & ((held < 0) | (new > own) | ((new == own) & (by < held)))
        rows, messages = rows[better], messages[better]
        best[rows], score[rows], origin[rows] = messages, scores[messages], origins[messages]
    return bidders._replace(score=score, origin=origin), best


def _heard(inbox: Inbox) -> Deliveries:
    """The deliveries; of everyone's messages, only the best bid has to be looked at."""
    if isinstance(inbox.deliveries, Deliveries):
        return inbox.deliveries
    scores = inbox.pool["bid"]["score"].masked_fill(inbox.pool["bid"]["origin"] < 0, -torch.inf)
    winner = int(torch.nonzero(scores == scores.max())[0])
    receiver = torch.arange(len(inbox.own))
    return Deliveries(receiver, torch.full_like(receiver, winner))
