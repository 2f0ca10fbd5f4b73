"""What every node's model comes to by the measure of a run, and the numbers of an evaluation that follow from it."""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np

from facade.analysis import measures
from facade.analysis.measures import Measure
from facade.analysis.metrics import Counts, Floats
from facade.core import seeds
from facade.runs.history import Evaluation

T = TypeVar("T")


def is_judged(name: str) -> bool:
    """Whether a number of `analysis.statistics` is of the measure by which runs are judged; others are always of
    accuracy, of bytes, of heads."""
    return name == "all" or name.startswith(("cluster_", "gap", "worst_", "mean_gain"))


def without_judged(named: dict[str, T]) -> dict[str, T]:
    """The others."""
    return {name: value for name, value in named.items() if not is_judged(name)}


def node_values(evaluation: Evaluation, by: Measure) -> Floats:
    """[n] what every node's model comes to; NaN where that is not known."""
    return measures.values(by, evaluation.confusion, evaluation.beside)


def mean_of_known(values: Floats) -> float:
    """The mean over the nodes that have a value; NaN where none has."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else math.nan


def of_nodes(values: Floats, cluster: Counts | None, choice: Counts | None, by: Measure) -> dict[str, float]:
    """The numbers, by name, that follow from the values of nodes [n]; means are over the nodes that have one."""
    known = ~np.isnan(values)
    if not known.any():
        return {}
    named: dict[str, float] = {}
    if cluster is not None:
        groups = [cluster == c for c in range(int(cluster.max()) + 1)]
        means = {c: float(values[group & known].mean()) for c, group in enumerate(groups) if (group & known).any()}
        named = {f"cluster_{c}": mean for c, mean in means.items()}
        if len(means) == len(groups):
            named["worst_cluster"] = by.worst(list(means.values()))
            named |= {"gap": max(means.values()) - min(means.values())} if len(groups) > 1 else {}
    named |= {"all": float(values[known].mean()), "worst_node": by.worst(values[known])}
    if choice is not None and known.all():
        named["worst_head"] = by.worst([float(values[choice == j].mean()) for j in np.unique(choice)])
    return named


def moved_values(evaluation: Evaluation, by: Measure, test_of: Counts, count: int, purpose: str) -> Floats:
    """[count, n] values as other test sets might have given them; nodes that share one rise and fall together. The
    same run gets the same draws every time."""
    tests, which = np.unique(test_of, return_inverse=True)
    generator = np.random.Generator(np.random.PCG64(seeds.key(0, f"resample-{purpose}")))
    noise = generator.standard_normal((count, len(tests)))[:, which]
    variance = measures.variances(by, evaluation.confusion, evaluation.beside)
    return measures.moved(by, node_values(evaluation, by), variance, noise)
