"""The demonstration: all six algorithms on the same digits, 30 nodes upright and 2 upside down."""

from __future__ import annotations

from facade.experiment.config import Experiment

ALGORITHMS = ("local", "dpsgd", "el", "dac", "deprl", "facade")


def experiment(algorithm: str, seed: int) -> Experiment:
    """One run of the demonstration."""
    return Experiment.of(
        {
            "name": "digits-30-2",
            "seed": seed,
            "data": {"source": "digits", "clusters": "30:2", "skew": "rotate"},
            "model": {"name": "mlp"},
            "algorithm": {"name": algorithm, "heads": 2, "core_steps": 10},
            "training": {"rounds": 200, "steps": 10, "batch": 8, "lr": 0.05},
            "evaluation": {"every": 20},
        }
    )
