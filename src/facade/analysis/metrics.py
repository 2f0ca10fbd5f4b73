"""From confusion matrices to numbers. Pure functions: a new metric works on old runs.

A confusion matrix counts true class (row) by predicted class (column). Groups are clusters: arrays
[G, C, C] hold one matrix per group, pooled over its nodes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]

LAMBDA = 2 / 3
"""Weight of accuracy against equality in fair accuracy."""


def accuracy(confusion: Counts) -> Floats:
    """Share of right answers of every matrix [..., C, C]."""
    right = np.trace(confusion, axis1=-2, axis2=-1)
    return np.asarray(right / confusion.sum((-2, -1)), dtype=np.float64)


def balanced_accuracy(confusion: Counts) -> Floats:
    """The mean over classes of the share of right answers, of every matrix [..., C, C]; classes that were not tested
    are left out."""
    counts = confusion.sum(-1)
    right = np.diagonal(confusion, axis1=-2, axis2=-1) / np.maximum(counts, 1)
    return np.asarray(right.sum(-1) / (counts > 0).sum(-1), dtype=np.float64)


def group_accuracy(confusion: Counts, cluster: Counts) -> Floats:
    """[G] mean of the node accuracies of every cluster."""
    nodes = accuracy(confusion)
    return np.array([nodes[cluster == c].mean() for c in range(int(cluster.max()) + 1)])


def pooled(confusion: Counts, cluster: Counts) -> Counts:
    """[G, C, C] sums of the matrices of every cluster's nodes."""
    return np.stack([confusion[cluster == c].sum(0) for c in range(int(cluster.max()) + 1)])


def fair_accuracy(accuracies: Floats) -> float:
    """High when all clusters do well and none lags behind; every cluster weighs the same."""
    gap = float(accuracies.max() - accuracies.min())
    return LAMBDA * float(accuracies.mean()) + (1 - LAMBDA) * (1 - gap)


def parity_gaps(groups: Counts) -> Floats:
    """Per class, how much the share of predictions differs between groups: largest - smallest."""
    shares = groups.sum(1) / groups.sum((1, 2))[:, None]
    return _spread(shares, _shared(groups))


def odds_gaps(groups: Counts) -> tuple[Floats, Floats]:
    """Per class, how much true and false positive rates differ between groups."""
    shared = _shared(groups)
    truth, predicted, total = groups.sum(2), groups.sum(1), groups.sum((1, 2))[:, None]
    right = np.diagonal(groups, axis1=1, axis2=2)
    with np.errstate(invalid="ignore", divide="ignore"):
        hits, false = right / truth, (predicted - right) / (total - truth)
    return _spread(hits, shared), _spread(false, shared)


def _shared(groups: Counts) -> NDArray[np.bool_]:
    """[C] the classes that every group's test set has."""
    return np.asarray((groups.sum(2) > 0).all(0))


def _spread(rates: Floats, shared: NDArray[np.bool_]) -> Floats:
    return np.asarray(rates.max(0) - rates.min(0))[shared]


def demographic_parity(groups: Counts) -> float | None:
    """Mean over classes of the gap in predicted shares: 0 is fair; null if no class is shared."""
    gaps = parity_gaps(groups)
    return float(gaps.mean()) if len(gaps) else None


def demographic_parity_sum(groups: Counts) -> float | None:
    """The paper's equation: the sum over classes instead of the mean."""
    gaps = parity_gaps(groups)
    return float(gaps.sum()) if len(gaps) else None


def equalized_odds(groups: Counts) -> float | None:
    """Mean over classes of the gaps in true and in false positive rates, added: 0 is fair; null if no class is
    shared, or a group was tested on a single class and cannot be wrong about it."""
    hits, false = odds_gaps(groups)
    return float((hits + false).mean()) if len(hits) and np.isfinite(false).all() else None


def equalized_odds_sum(groups: Counts) -> float | None:
    """The paper's equation: the sum over classes of the gaps in true positive rates."""
    hits, _ = odds_gaps(groups)
    return float(hits.sum()) if len(hits) else None


GROUP_METRICS: dict[str, Callable[[Counts], float | None]] = {
    "dp": demographic_parity,
    "eo": equalized_odds,
    "dp_sum": demographic_parity_sum,
    "eo_sum": equalized_odds_sum,
}


def separated(choice: Counts, cluster: Counts) -> bool:
    """Whether no head is used by nodes of two clusters."""
    return all(len(set(cluster[choice == head].tolist())) == 1 for head in set(choice.tolist()))


def settled(choice: Counts, cluster: Counts) -> bool:
    """Whether heads separate the clusters and every cluster uses exactly one."""
    one_each = all(len(set(choice[cluster == c].tolist())) == 1 for c in set(cluster.tolist()))
    return one_each and separated(choice, cluster)


METRICS: dict[str, str] = {
    "clusters": "accuracy per cluster: the mean over its nodes",
    "worst_cluster": "the lowest of these",
    "gap": "the largest difference between these: 0 is fair",
    "all": "accuracy: the mean over all nodes",
    "worst_node": "the lowest accuracy of any node",
    "heads": "accuracy per chosen head: the mean over its nodes; needs no knowledge of clusters",
    "worst_head": "the lowest of these",
    "mean_gain": "accuracy minus that of training alone (a run of local): the mean over all nodes",
    "worst_gain": "the lowest gain of any node: below 0, it is worse off than alone",
    "worst_site": "accuracy of the site whose mean over seeds is the lowest",
    "gap_between_sites": "accuracy of the best minus that of the worst site, by means over seeds: 0 is fair",
    "worst_gain_over_local": "gain over training alone of the site that gains least by means over seeds; also _over_el",
    "mean_gain_over_local": "gain over training alone: the mean over all sites; also _over_el",
    "loss": "cross-entropy: the mean over all nodes, on validation data only",
    "balanced-accuracy": "mean over tested classes of right answers: the mean over all nodes, on validation data only",
    "auc": "area under the ROC curve: the mean over all nodes, on validation data only",
    "log-loss": "the same as loss",
    "calibration-error": "confidence against right answers: the mean over all nodes, on validation data only",
    "fair_accuracy": "2/3 of the clusters' mean accuracy + 1/3 of (1 - largest gap between clusters)",
    "dp": "demographic parity: mean over classes of the gap in predicted shares",
    "eo": "equalized odds: mean over classes of the gaps in true + false positive rates",
    "dp_sum": "demographic parity as the paper's equation: a sum over classes",
    "eo_sum": "equalized odds as the paper's equation: a sum of gaps in true positive rates",
    "bytes_per_node": "payload bytes a node heard on average, without the final exchange",
    "bytes_final": "payload bytes a node heard in the final exchange",
    "separated": "no head is used by nodes of two clusters",
    "settled": "separated, and one head per cluster",
}
