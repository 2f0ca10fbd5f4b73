"""A site's own data where a run, or a federation of sites, has named the classes already."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch

from facade.data.samples import Dataset, Labelled
from facade.errors import ExperimentError


def matched(dataset: Dataset, classes: Sequence[str], shape: Sequence[int], whose: str) -> Dataset:
    """The data set with the class numbers of others, whose classes are matched by name; ExperimentError for classes and
    inputs that they do not have. `whose` says in refusals who they are."""
    strange = [name for name in dataset.classes if name not in classes]
    if strange:
        raise ExperimentError(
            f"{whose} knows no class '{strange[0]}'; its classes are {', '.join(classes)}: name the site's alike"
        )
    inputs = list(dataset.train.x.shape[1:])
    if inputs != list(shape):
        raise ExperimentError(f"{whose} takes inputs of shape {list(shape)} but the site's are {inputs}")
    numbers = torch.tensor([list(classes).index(name) for name in dataset.classes], dtype=torch.int64)
    train, test = (Labelled(part.x, numbers[part.y]) for part in (dataset.train, dataset.test))
    return dataclasses.replace(dataset, train=train, test=test, classes=list(classes))
