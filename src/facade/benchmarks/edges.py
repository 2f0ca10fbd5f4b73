"""What many edges cost: rounds of small nodes that hear 64 others each, instead of 4."""

from __future__ import annotations

from typing import Any

import numpy as np

from facade.benchmarks.rounds import Rounds, pairwise
from facade.benchmarks.scaling import digits
from facade.experiment.setup import set_up

FEW, MANY = 4, 64


def run(quick: bool) -> dict[str, Any]:
    """EL with 1,000 and 10,000 digits nodes."""
    return {"edges": {str(n): _of(n, 2 if quick else 8) for n in ((100,) if quick else (1_000, 10_000))}}


def _of(nodes: int, pairs: int) -> dict[str, Any]:
    few, many = (Rounds(set_up(digits(nodes, "el").with_(f"topology.degree={degree}"))) for degree in (FEW, MANY))
    rounds = max(1, 4_000 // nodes)
    for game in (few, many):
        game.advance(1)
        game.setup.learner.stopwatch.lap()
    ratios, with_many, with_few = pairwise(lambda: many.advance(rounds), lambda: few.advance(rounds), pairs)
    spent = many.setup.learner.stopwatch.lap()
    shares = {phase: round(s / sum(spent.values()), 4) for phase, s in spent.items()}
    return {
        "few_over_many": ratios,
        "microseconds_per_node_round": {
            str(degree): round(1e6 * spent / nodes / rounds, 1)
            for degree, spent in ((FEW, with_few), (MANY, with_many))
        },
        "mixing_and_topology_of_many": round(float(np.sum([shares[phase] for phase in ("mix", "topology")])), 4),
        "phases_of_many": shares,
    }
