"""Tiny runs on real digits."""

import pytest

from experiments import digits
from facade import run


def tiny(*settings):
    """Four nodes, six rounds, three checkpoints: a fraction of a second."""
    return digits(*settings, clusters="3:1", degree=2, rounds=6, steps=1, every=2)


@pytest.fixture(scope="session")
def digits_runs(tmp_path_factory):
    """A directory with finished runs of three algorithms, two seeds each: ALGORITHM-SEED."""
    base = tmp_path_factory.mktemp("runs")
    for algorithm in ("facade", "el", "local"):
        for seed in (1, 2):
            settings = (f"algorithm.name={algorithm}", f"seed={seed}", "training.steps=5", "training.rounds=20")
            run(tiny(*settings, "evaluation.every=10", "training.lr=0.1"), base / f"{algorithm}-{seed}")
    return base
