"""Small experiments on real digits: a run of one takes a fraction of a second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from facade import Experiment


def digits(
    *settings: str, clusters: str, rounds: int, steps: int, every: int, degree: int = 4, **algorithm: Any
) -> Experiment:
    """FACADE, unseeded unless its fields say otherwise; settings, as on the command line, have the last word."""
    return Experiment.of(
        {
            "name": "tiny",
            "data": {"source": "digits", "clusters": clusters},
            "algorithm": {"name": "facade", "warmup": 1, "seeding": "none"} | algorithm,
            "topology": {"degree": degree},
            "training": {"rounds": rounds, "steps": steps},
            "evaluation": {"every": every},
            "runtime": {"threads": 1},
        },
        settings,
    )


def written(experiment: Experiment, path: Path) -> Path:
    """The file, with the experiment in it."""
    path.write_text(experiment.toml())
    return path
