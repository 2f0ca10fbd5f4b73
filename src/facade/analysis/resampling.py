"""Test results as other test samples might have given them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from facade.analysis.metrics import Counts, Floats
from facade.core import seeds

RESAMPLES = 1000


def resampled(confusion: Counts, test_of: Counts, purpose: str = "test") -> Iterator[Counts]:
    """RESAMPLES times: matrices [n, C, C] as other test images might have given them.

    Images are drawn again, with replacement, from the confusion matrices. Nodes that share a test
    set get the same draw, from the sum of their matrices: their answers to an image are taken to
    rise and fall together, as those of equal models do, so intervals are wide rather than narrow.
    The same run gets the same draws every time.
    """
    tests, first, which = np.unique(test_of, return_index=True, return_inverse=True)
    sums = np.zeros((len(tests), *confusion.shape[1:]), np.int64)
    np.add.at(sums, which, confusion)
    images = confusion[first].sum((1, 2))
    generator = np.random.Generator(np.random.PCG64(seeds.key(0, f"resample-{purpose}")))
    sparse = images.sum() < sums.size
    draws = _by_image(sums, images, generator) if sparse else _by_cell(sums, images, generator)
    return (drawn[which] for drawn in itertools.islice(draws, RESAMPLES))


def _by_cell(sums: Counts, images: Counts, generator: np.random.Generator) -> Iterator[Counts]:
    """How many images fall into every cell; quick where test sets have more images than matrices have cells."""
    shares = sums.reshape(len(sums), -1) / sums.sum((1, 2))[:, None]
    while True:
        yield generator.multinomial(images, shares).reshape(sums.shape)


def _by_image(sums: Counts, images: Counts, generator: np.random.Generator) -> Iterator[Counts]:
    """Into which cell every image falls; quick where there are many classes and few images."""
    answers = np.repeat(np.arange(sums.size), sums.ravel())  # the cell, among those of all test sets, of every answer
    count = sums.sum((1, 2))
    begins, length = np.repeat(np.cumsum(count) - count, images), np.repeat(count, images)
    while True:
        drawn = answers[begins + (generator.random(len(length)) * length).astype(np.int64)]
        yield np.bincount(drawn, minlength=sums.size).reshape(sums.shape)


def likely_accuracies(confusion: Counts, test_of: Counts, purpose: str = "accuracy") -> Floats:
    """[RESAMPLES, n] what the accuracies of nodes may truly be, given their answers: draws from the posterior of a
    share with Jeffreys' prior. (Images that are drawn again would take 18 right answers of 18 for a model that is
    never wrong.) Nodes that share a test set rise and fall together, as in `resampled`."""
    from scipy.special import betaincinv

    tests, which = np.unique(test_of, return_inverse=True)
    generator = np.random.Generator(np.random.PCG64(seeds.key(0, f"resample-{purpose}")))
    levels = np.tile(
        (np.arange(RESAMPLES) + 0.5) / RESAMPLES, (len(tests), 1)
    )  # evenly, so that no end is left to luck
    level = generator.permuted(levels, axis=1).T[:, which]
    right, counts = np.trace(confusion, axis1=1, axis2=2), confusion.sum((1, 2))
    return np.asarray(betaincinv(right + 0.5, counts - right + 0.5, level))
