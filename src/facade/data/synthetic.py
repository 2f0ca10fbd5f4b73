"""Gaussian classes whose places differ from cluster to cluster: a problem with a known answer.

L2-regularised softmax regression on these rows is strongly convex, so each cluster has one best
parameter vector, and theory says how fast nodes approach it. The functions below compute that
optimum and the constants of the theory.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from facade.core import seeds
from facade.core.types import Ids
from facade.data.errors import DataError
from facade.data.samples import Dataset, Labelled
from facade.data.section import DataSection

Floats = NDArray[np.float64]

VALUES, CLASSES, ROWS, TEST_ROWS = 10, 4, 120, 80
"""Values per row, classes, and rows per node for training and testing."""
SPREAD = 1.5
"""Deviation of the classes' centres; rows scatter around a centre with deviation 1."""


def synthetic(data: DataSection) -> Dataset:
    """Rows of 10 values in 4 Gaussian classes, at other places in every cluster: for the theory.

    Each node has 120 rows of its own, so set partition = "natural" and skew = "none".
    """
    cluster = np.repeat(np.arange(len(data.sizes)), data.sizes)
    train, node = gaussian_rows(cluster, ROWS, "train")
    test, test_node = gaussian_rows(cluster, TEST_ROWS, "test")
    names = [str(c) for c in range(CLASSES)]
    return Dataset(train, test, names, node=node, test_node=test_node, cluster_of_site=cluster)


def gaussian_rows(cluster: Ids, rows: int, split: str) -> tuple[Labelled, Ids]:
    """Samples of all nodes (cluster [n]), `rows` each with classes in turn, and the node of every
    row. A node's rows depend on its number and cluster alone."""
    nodes = np.arange(len(cluster))
    y = np.broadcast_to(np.arange(rows) % CLASSES, (len(cluster), rows))
    noise = _normal("synthetic-" + split, 0, nodes, rows * VALUES).reshape(len(cluster), rows, VALUES)
    each = np.arange(int(cluster.max()) + 1)
    centres = SPREAD * _normal("synthetic-centres", 0, each, CLASSES * VALUES).reshape(-1, CLASSES, VALUES)
    x = centres[cluster[:, None], y] + noise
    samples = Labelled(
        torch.from_numpy(x.reshape(-1, VALUES).astype(np.float32)), torch.from_numpy(y.reshape(-1).copy())
    )
    return samples, np.repeat(nodes, rows)


def _normal(purpose: str, round: int, ids: Ids, count: int) -> Floats:
    """[len(ids), count] draws from the standard normal distribution, by Box and Muller."""
    uniform = seeds.uniform(0, purpose, round, ids, 2 * count)
    return np.asarray(np.sqrt(-2 * np.log(uniform[:, :count])) * np.cos(2 * np.pi * uniform[:, count:]))


class Optimum(NamedTuple):
    """The minimiser of mean cross-entropy + l2/2 |theta|^2 over weights and biases."""

    weight: Floats
    """[classes, values]"""
    bias: Floats
    """[classes]"""
    loss: float
    """Objective at the minimum."""
    gradient_norm: float


def optimum(x: Floats, y: Ids, classes: int, l2: float, tolerance: float = 1e-10) -> Optimum:
    """Newton's method in float64, with steps halved until they help, to a gradient of `tolerance`.
    Rows [N, values] and labels [N]; l2 > 0 makes the minimum unique."""
    rows = _with_one(x)
    theta = np.zeros((classes, rows.shape[1]))
    for _ in range(100):
        loss, gradient, hessian = _expand(theta, rows, y, l2)
        norm = float(np.linalg.norm(gradient))
        if norm <= tolerance:
            return Optimum(theta[:, :-1], theta[:, -1], loss, norm)
        step = np.linalg.solve(hessian, gradient.ravel()).reshape(theta.shape)
        scale = 1.0
        while _objective(theta - scale * step, rows, y, l2) > loss and scale > 1e-10:
            scale /= 2
        theta = theta - scale * step
    raise DataError(f"the optimum was not reached: gradient norm {norm:.2g}, wanted {tolerance:g}; use a larger l2")


def convexity(x: Floats, l2: float) -> tuple[float, float]:
    """(L, lambda): smoothness and strong convexity of the same objective. The curvature of softmax
    cross-entropy lies between 0 and half of the rows' largest second moment."""
    rows = _with_one(x)
    largest = float(np.linalg.eigvalsh(rows.T @ rows / len(rows))[-1])
    return 0.5 * largest + l2, l2


def _with_one(x: Floats) -> Floats:
    """Rows with a 1 appended, whose weight is the bias."""
    return np.concatenate([np.asarray(x, np.float64), np.ones((len(x), 1))], 1)


def _log_shares(theta: Floats, rows: Floats) -> Floats:
    logits = rows @ theta.T
    logits -= logits.max(1, keepdims=True)
    return np.asarray(logits - np.log(np.exp(logits).sum(1, keepdims=True)))


def _objective(theta: Floats, rows: Floats, y: Ids, l2: float) -> float:
    return float(-_log_shares(theta, rows)[np.arange(len(y)), y].mean() + l2 / 2 * (theta**2).sum())


def _expand(theta: Floats, rows: Floats, y: Ids, l2: float) -> tuple[float, Floats, Floats]:
    """Objective, gradient [classes, values + 1] and Hessian at theta."""
    classes, width = theta.shape
    share = np.exp(_log_shares(theta, rows))
    wrong = share.copy()
    wrong[np.arange(len(y)), y] -= 1
    gradient = wrong.T @ rows / len(y) + l2 * theta
    blocks = np.empty((classes, width, classes, width))
    for a in range(classes):
        for b in range(classes):
            weight = share[:, a] * ((a == b) - share[:, b])
            blocks[a, :, b, :] = (rows * weight[:, None]).T @ rows / len(y)
    hessian = blocks.reshape(classes * width, classes * width)
    hessian[np.diag_indices_from(hessian)] += l2
    return _objective(theta, rows, y, l2), gradient, hessian
