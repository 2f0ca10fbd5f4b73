"""Which model of a run fits a new site: the loss of every deployed model on the site's own data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from facade.analysis.metrics import Floats
from facade.analysis.statistics import student_interval
from facade.core import tree
from facade.data.load import read
from facade.data.matching import matched
from facade.data.samples import Holdings, Labelled
from facade.data.section import DataSection
from facade.export.package import refuse_attacked
from facade.learning.running_statistics import estimate
from facade.runs import history
from facade.runs.result import Result

_CHUNK = 256
ENOUGH = 5
"""Samples below which no lead is called clear: their spread says too little of that of others."""


@dataclass(frozen=True)
class OfferedModel:
    """A model that some nodes deploy, on a new site's data."""

    head: int | None
    nodes: list[int]
    """Who deploys it."""
    losses: Floats
    """[N] cross-entropy of every sample."""
    accuracy: float

    @property
    def loss(self) -> float:
        """Mean over the samples."""
        return float(self.losses.mean())

    @property
    def name(self) -> str:
        """What to call the model."""
        return f"node {self.nodes[0]}" if self.head is None else f"head {self.head}"


def site_data(data: DataSection, classes: Sequence[str], shape: Sequence[int]) -> Labelled:
    """The training samples of a source, or all where it has no others, labelled with the run's class numbers;
    classes are matched by name."""
    site = matched(read(data), classes, shape, "the run")
    parts = [site.train, site.test] if site.tests_held_out else [site.train]
    return Labelled(torch.cat([part.x for part in parts]), torch.cat([part.y for part in parts]))


@dataclass(frozen=True)
class Recommendation:
    """What a run has for a new site."""

    models: list[OfferedModel]
    """Every different model that nodes deploy, the one with the lowest loss first."""
    unused: list[int]
    """Heads that nobody deploys: they were not trained to the end and are not offered."""
    estimated: list[str]
    """Running statistics that never left their nodes: of every model, those of the site's data were put in their
    place before it was judged."""
    untrained: list[str]
    """Other tensors that never left their nodes: in every model, they are still those of a node that deploys it."""
    log_shares: Floats | None = None
    """[classes] the site's own, added to all outputs as the balanced loss does; None: nothing was added."""


def recommend(run: str | Path, data: DataSection) -> Recommendation:
    """All deployed models of a run on the site's data, images scaled as the run's were."""
    result, past = Result.load(run), history.load(run)
    refuse_attacked(past)
    shape = result.learner.inputs.shape
    scaled = {"size": shape[-1], "channels": shape[0]} if len(shape) == 3 and shape[0] in (1, 3) else {}
    # What is held out as a test counts as well; by halves also two samples of a class can be divided.
    site = site_data(data.model_copy(update=scaled | {"test_fraction": 0.5}), past.classes, shape)
    local, statistics = result.learner.local_names, result.learner.running_statistics
    shares = result.learner.log_shares(Holdings(site, np.arange(1), [np.arange(len(site))]))
    groups: dict[str, list[int]] = {}
    offered = {name: leaf for name, leaf in result.models.items() if name not in local & statistics}
    for node, digest in enumerate(tree.digests(offered, len(past.test_of))):
        groups.setdefault(digest, []).append(node)
    choice = past.final.choice
    models = []
    for nodes in groups.values():
        losses, accuracy = _tested(result, nodes[0], site, shares)
        models.append(OfferedModel(None if choice is None else int(choice[nodes[0]]), nodes, losses, accuracy))
    unused = [] if choice is None else sorted(set(range(past.heads)) - set(choice.tolist()))
    models.sort(key=lambda model: model.loss)
    log_shares = None if shares is None else shares[0].double().numpy()
    return Recommendation(models, unused, sorted(local & statistics), sorted(local - statistics), log_shares)


def _tested(result: Result, node: int, site: Labelled, log_shares: Tensor | None) -> tuple[Floats, float]:
    module, learner = result.model(node), result.learner
    parts = range(0, len(site), _CHUNK)
    if learner.local_names & learner.running_statistics and len(site) > 1:
        inputs = torch.tensor_split(site.x, len(parts))
        estimate(module, (learner.inputs.prepare(part, learner.dtype) for part in inputs))
    losses, right = [], 0
    with torch.no_grad():
        for start in parts:
            part = site[start : start + _CHUNK]
            logits = module(learner.inputs.prepare(part.x, learner.dtype))
            logits = logits if log_shares is None else logits + log_shares
            losses.append(functional.cross_entropy(logits.double(), part.y, reduction="none").numpy())
            right += int((logits.argmax(1) == part.y).sum())
    return np.concatenate(losses), right / len(site)


class Lead(NamedTuple):
    """How much better the best fit is than the second."""

    by: float
    """Mean difference of their losses."""
    reach: float | None
    """Half-width of a 95 % interval for that; None: one sample has no spread."""
    samples: int

    @property
    def clear(self) -> bool:
        """Whether it can be told from chance."""
        return self.samples >= ENOUGH and self.reach is not None and self.by > self.reach


def lead(best: OfferedModel, second: OfferedModel) -> Lead:
    """How much lower the best loss is. The samples are the same for both, so their differences count."""
    difference = second.losses - best.losses
    interval = student_interval(difference.tolist())
    reach = None if interval is None else (interval.high - interval.low) / 2
    return Lead(float(difference.mean()), reach, len(difference))
