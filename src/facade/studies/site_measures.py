"""How well every node does on its own test and validation samples: the area under the ROC curve of two classes, the
accuracy of more."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata

from facade.analysis import metrics
from facade.core.types import Row
from facade.data.federation import Federation
from facade.data.samples import Labelled
from facade.runs.result import Result


def of_sites(federation: Federation, result: Result, finals: list[Row]) -> Row:
    """What a line keeps of a run on real sites: `measured` and `validated` [n], None where a node has samples of one
    class alone. Nothing of other runs."""
    if federation.sites is None or federation.validations is None:
        return {}
    sets = {"measured": ("", federation.tests), "validated": ("validation_", federation.validations)}
    if len(federation.classes) == 2:
        return {
            name: [_auc(result, node, tests[number]) for node, number in enumerate(federation.test_of)]
            for name, (_, tests) in sets.items()
        }
    return {
        name: [round(float(metrics.accuracy(np.array(row[f"{prefix}confusion"]))), 4) for row in finals]
        for name, (prefix, _) in sets.items()
    }


def _auc(result: Result, node: int, samples: Labelled) -> float | None:
    with torch.no_grad():
        outputs = result.model(node)(result.learner.inputs.prepare(samples.x, result.learner.dtype))
    return area((outputs[:, 1] - outputs[:, 0]).numpy(), samples.y.numpy() == 1)


def area(scores: NDArray[np.floating], positive: NDArray[np.bool_]) -> float | None:
    """Area under the ROC curve: how often a positive sample has a higher score than a negative one, ties counting
    half. None without samples of both kinds."""
    count, others = int(positive.sum()), int((~positive).sum())
    if not count or not others:
        return None
    return round(float((rankdata(scores)[positive].sum() - count * (count + 1) / 2) / (count * others)), 4)
