"""Who may have whose message: the one rule that a site serves by and that an audit judges by."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from facade.core.algorithm import Algorithm
    from facade.core.plan import Plan


class Access:
    """Who may hear whom under one list. The graphs of the last rounds asked for are kept, as long as this is."""

    def __init__(self, algorithm: Algorithm[Any], plan: Plan) -> None:
        self._algorithm, self._plan = algorithm, plan
        self.graph = functools.lru_cache(maxsize=64)(plan.graph)

    def neighbours(self, round: int, receiver: int) -> list[int]:
        """Whom a member hears in a round's graph, in ascending order."""
        graph = self.graph(round)
        if graph.everyone:
            return [i for i in range(graph.n) if i != receiver]
        senders: list[int] = graph.sender[graph.receiver == receiver].tolist()
        return senders

    def has(self, round: int, sender: int, receiver: int) -> bool:
        """Whether a member may have another's message of a round: a neighbour in the round's graph;
        where the algorithm says so, and in the final exchange, any member."""
        if self._algorithm.audience == "members" or round == self._plan.rounds:
            return True
        return sender in self.neighbours(round, receiver)
