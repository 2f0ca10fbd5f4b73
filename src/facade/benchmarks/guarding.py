"""What the recommended guard costs: its round over an unguarded one, in the same run."""

from __future__ import annotations

from typing import Any

from facade.benchmarks.rounds import CIFAR, Rounds, federation, pairwise, prepared

NODES = 16
MODEL, SHAPE = "gn-lenet", CIFAR


def run(quick: bool) -> dict[str, Any]:
    """Time of a guarded FACADE round over that of an unguarded one, after heads are chosen: nodes hear four others,
    as in the paper, and judge on few samples. Messages are the same."""
    data = federation(SHAPE, NODES, 100)
    plain, guarded = (Rounds(prepared(data, MODEL, {"heads": 2}, f"guard.rule={rule}")) for rule in ("none", "fair"))
    for game in (plain, guarded):
        game.advance(1)  # whatever is done once
    ratios, unguarded_seconds, guarded_seconds = pairwise(
        lambda: plain.advance(1), lambda: guarded.advance(1), 2 if quick else 12
    )
    return {
        "guard": {
            "guarded_over_unguarded": ratios,
            "guarded_seconds": round(guarded_seconds, 3),
            "unguarded_seconds": round(unguarded_seconds, 3),
        }
    }
