"""From the [data] section of an experiment to a federation."""

from __future__ import annotations

import dataclasses
import warnings

import torch

from facade.core.names import is_foreign
from facade.data.arrays import same_kind
from facade.data.errors import DataError
from facade.data.federation import Federation, clusters_of, federate
from facade.data.named import named
from facade.data.samples import Dataset, Labelled
from facade.data.section import DataSection
from facade.data.sources import SOURCES
from facade.errors import ExperimentError


def load(data: DataSection, seed: int) -> Federation:
    """The federation an experiment asks for. The split depends on data and seed alone, so every
    algorithm of a comparison gets the same one."""
    dataset = read(data)
    if data.partition == "natural" and len(data.sizes) > 1:
        _mind_clusters(dataset, data)
    federation = federate(dataset, data, seed, clusters_of(data))
    if data.partition == "natural" and len(data.sizes) == 1 and data.source != "synthetic":
        # One number says how many nodes there are, not that they are alike; synthetic ones are made so.
        return dataclasses.replace(federation, cluster=None)
    return federation


def read(data: DataSection) -> Dataset:
    """The data set that a section names, undivided. Whoever calls owns it."""
    dataset = named("dataset", data.source, SOURCES)(data)
    if not isinstance(dataset, Dataset):
        raise ExperimentError(f"dataset '{data.source}' returned {type(dataset).__name__}; expected a facade Dataset")
    if is_foreign(data.source):  # a user's function, which may keep what it returned
        _check_samples(data.source, dataset)
        dataset = dataclasses.replace(dataset, train=Labelled(dataset.train.x.clone(), dataset.train.y))
    return dataset


def _check_samples(source: str, dataset: Dataset) -> None:
    """Refuse samples of a user's own source that training would stumble over."""
    classes = len(dataset.classes)
    for what, part in (("training", dataset.train), ("test", dataset.test)):
        x, y = part.x, part.y
        if not isinstance(x, torch.Tensor) or not isinstance(y, torch.Tensor):
            raise DataError(
                f"dataset '{source}': {what} samples are {type(x).__name__} and {type(y).__name__}; expected torch"
                " tensors, such as torch.from_numpy(x)"
            )
        if y.dtype != torch.int64 or y.shape != (len(x),) or not len(y):
            raise DataError(
                f"dataset '{source}': {what} labels of type {y.dtype} and shape {list(y.shape)} for {len(x)} inputs;"
                " expected int64, one per input, at least one"
            )
        if not 0 <= int(y.min()) <= int(y.max()) < classes:
            raise DataError(
                f"dataset '{source}': {what} labels are {int(y.min())} to {int(y.max())}, but there are {classes}"
                f" classes; expected 0 to {classes - 1}"
            )
    same_kind(dataset.train, dataset.test, f"dataset '{source}', test")


def _mind_clusters(dataset: Dataset, data: DataSection) -> None:
    """Warn where clusters that differ by nature would be made to look alike, or still more different."""
    if data.skew == "none" and dataset.test_node is None:
        warnings.warn(
            "all clusters are tested on the same samples, so a model that serves one of them badly may not show;"
            " name the node of every test sample (npz: nodes_test)",
            stacklevel=3,
        )
    if data.skew != "none":
        warnings.warn(
            f"data.skew = '{data.skew}' changes the samples of clusters that data.partition = 'natural' brings;"
            " set data.skew = 'none' to leave them as they are",
            stacklevel=3,
        )
