"""Real sites: what each of them holds, and how its rows become its training and its test samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from facade.core import seeds
from facade.core.types import Ids
from facade.data.errors import DataError
from facade.data.samples import Dataset, Labelled
from facade.data.section import DataSection

Inputs = Callable[[NDArray[np.bool_], Ids], Tensor]
"""Gives the inputs of all samples [N, ...], told which of them are trained on [N] and at which node each is [N]: what
rows are scaled by, or gaps in them are filled with, comes from a node's own training rows."""


@dataclass(frozen=True)
class Sites:
    """The samples of real sites as their files hold them: none is set apart for tests yet."""

    inputs: Inputs
    labels: Ids
    """[N] class numbers."""
    site: Ids
    """[N] the site that each sample comes from."""
    names: list[str]
    """Of the sites."""
    classes: list[str]
    mean: list[float] = field(default_factory=lambda: [0.5])
    std: list[float] = field(default_factory=lambda: [0.5])
    domains: bool = False
    """Whether a site is a whole domain, which data.clusters divides among nodes."""
    notes: list[str] = field(default_factory=list)
    standardised: bool = False
    """Whether rows were standardised by the training rows of the site that they are of."""

    def divided(self, data: DataSection, seed: int) -> Dataset:
        """Every node's samples in a training and a test part: data.test_fraction of each of its classes, drawn by the
        seed."""
        node, names = self._nodes(data, seed)
        testing = _for_tests(node, self.labels, data.test_fraction, seed)
        _check(testing, node, names, data)
        samples, test = Labelled(self.inputs(~testing, node), torch.from_numpy(self.labels)), torch.from_numpy(testing)
        return Dataset(
            samples[~test],
            samples[test],
            self.classes,
            self.mean,
            self.std,
            node=node[~testing],
            test_node=node[testing],
            tests_held_out=True,
            notes=self.notes,
            sites=names,
            standardised=self.standardised,
        )

    def _nodes(self, data: DataSection, seed: int) -> tuple[Ids, list[str]]:
        """[N] the node that holds each sample, and the names of the nodes."""
        if not self.domains or data.partition != "natural":
            return self.site, self.names
        parts = data.sizes
        if len(parts) != len(self.names):
            raise DataError(
                f"data.clusters = '{data.clusters}' names {len(parts)} clusters but {data.source} has the domains"
                f" {', '.join(self.names)}; give the nodes of each, such as '{':'.join(['2'] * len(self.names))}'"
            )
        first = np.cumsum([0, *parts])
        node = np.empty(len(self.site), np.int64)
        order = seeds.permutation(seed, "domains", len(self.site))
        order = order[np.argsort(self.labels[order], kind="stable")]
        for number, count in enumerate(parts):
            rows = order[self.site[order] == number]  # class by class: dealt in turn, all nodes get as many of each
            if len(rows) < count:
                raise DataError(
                    f"data.clusters = '{data.clusters}' divides the {len(rows)} samples of {self.names[number]} among"
                    f" {count} nodes; give it fewer"
                )
            node[rows] = first[number] + np.arange(len(rows)) % count
        return node, [
            name if count == 1 else f"{name} {part + 1}"
            for name, count in zip(self.names, parts, strict=True)
            for part in range(count)
        ]


def _for_tests(node: Ids, labels: Ids, fraction: float, seed: int) -> NDArray[np.bool_]:
    """[N] a random part of every node's samples, with its classes in the shares that they have there: of the samples
    of a node, class by class, one in so many."""
    order = seeds.permutation(seed, "test", len(node))
    order = order[np.lexsort((labels[order], node[order]))]
    place = np.arange(len(order)) - np.searchsorted(node[order], node[order])
    whole = np.floor(np.stack([place, place + 1]) * fraction + 0.5)
    testing = np.empty(len(order), np.bool_)
    testing[order] = whole[1] > whole[0]
    return testing


def _check(testing: NDArray[np.bool_], node: Ids, names: list[str], data: DataSection) -> None:
    """Refuse a division that leaves a node without a sample to train or to be tested on."""
    for number, name in enumerate(names):
        own = testing[node == number]
        if own.all() or not own.any():
            what, remedy = ("train", "lower") if len(own) and own.all() else ("be tested", "raise")
            raise DataError(
                f"{name} has {len(own)} samples, and with data.test_fraction = {data.test_fraction:g} none to {what}"
                f" on; {remedy} it, or use fewer nodes"
            )


def as_they_are(x: Tensor) -> Inputs:
    """Inputs that nothing is done to."""
    return lambda training, node: x


def standardised(x: Tensor) -> Inputs:
    """Rows [N, values] with mean 0 and variance 1 in every column of a node's training rows."""

    def inputs(training: NDArray[np.bool_], node: Ids) -> Tensor:
        scaled = torch.empty_like(x)
        for number in np.unique(node).tolist():
            own = torch.from_numpy(node == number)
            known = x[torch.from_numpy((node == number) & training)]
            spread = known.std(0, unbiased=False)
            scaled[own] = (x[own] - known.mean(0)) / torch.where(spread > 0, spread, 1.0)
        return scaled

    return inputs
