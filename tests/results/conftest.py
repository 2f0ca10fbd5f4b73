"""Tiny runs on real digits."""

from experiments import digits


def tiny(*settings):
    """Four nodes, six rounds, three checkpoints: a fraction of a second."""
    return digits(*settings, clusters="3:1", degree=2, rounds=6, steps=1, every=2)
