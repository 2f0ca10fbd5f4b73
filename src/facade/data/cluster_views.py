"""How each cluster sees the images of a data set: data.skew, taken apart and applied."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from facade.core.names import is_foreign
from facade.core.types import Ids
from facade.data.named import named
from facade.data.samples import Dataset, Holdings, Labelled
from facade.data.section import DataSection
from facade.data.skews import CHANGES, SELECTIONS, SKEWS, Change, View, none
from facade.errors import ExperimentError

_CHUNK = 1024
"""Images changed at a time, so that loading needs little memory beyond the images themselves."""


class ClusterViews:
    """The data set through the eyes of each cluster."""

    def __init__(self, dataset: Dataset, data: DataSection, clusters: int) -> None:
        self.clusters = clusters
        self.classes: list[Ids] | None = None
        """Per cluster the classes it has; None: every cluster has all."""
        self._dataset, self._severity = dataset, data.severity
        self._changes: list[Change] = []
        for name in (part.strip() for part in data.skew.split("+")):
            if name in SELECTIONS:
                self.classes = SELECTIONS[name](dataset, data, clusters)
                continue
            change: Change = CHANGES[name] if name in CHANGES else named("skew", name, SKEWS)  # type: ignore[assignment]
            if change is not none:
                self._changes.append(change)
                self._check(name, data.source)

    def _check(self, name: str, source: str) -> None:
        """Refuse before anything is changed."""
        x = self._dataset.train.x
        if x.dim() != 4:
            given = f"rows of {x.shape[1]} values" if x.dim() == 2 else f"samples of shape {list(x.shape[1:])}"
            raise ExperimentError(
                f"skew '{name}' changes images, but '{source}' gives {given}; set data.skew to 'none' or 'labels'"
            )
        if x.dtype != torch.uint8:
            raise ExperimentError(
                f"skew '{name}' changes images of bytes, but '{source}' gives {x.dtype};"
                " make them uint8 with values 0 to 255, or set data.skew to 'none' or 'labels'"
            )
        for cluster in range(self.clusters):
            changed = self._changed(x[:1].clone(), np.zeros(1, np.int64), cluster, "train")
            if is_foreign(name) and (changed.shape, changed.dtype) != (x[:1].shape, x.dtype):
                raise ExperimentError(
                    f"skew '{name}' turns {x.dtype} images {list(x.shape[1:])} into {changed.dtype}"
                    f" {list(changed.shape[1:])}; type and shape must stay"
                )

    def _changed(self, images: Tensor, rows: Ids, cluster: int, split: str) -> Tensor:
        view = View(cluster, self.clusters, self._severity, rows, split)
        for change in self._changes:
            images = change(images, view)
        return images

    def select(self, labels: Ids, cluster: int) -> Ids:
        """Rows whose class the cluster has."""
        if self.classes is None:
            return np.arange(len(labels))
        return np.nonzero(np.isin(labels, self.classes[cluster]))[0]

    def seen(self, split: str, rows: Ids, cluster: int) -> Labelled:
        """The given rows of a split ("train", "test") as a cluster sees them; where that is the
        whole split unchanged, the memory is shared."""
        plain = self._dataset.train if split == "train" else self._dataset.test
        if not self._changes or cluster == 0:
            return plain if len(rows) == len(plain) else plain[torch.from_numpy(rows)]
        x = torch.empty(len(rows), *plain.x.shape[1:], dtype=plain.x.dtype)
        for start in range(0, len(rows), _CHUNK):
            some = rows[start : start + _CHUNK]
            x[start : start + _CHUNK] = self._changed(plain.x[torch.from_numpy(some)], some, cluster, split)
        return Labelled(x, plain.y[torch.from_numpy(rows)])

    def in_place(self, held: list[Ids], cluster: Ids) -> Holdings:
        """The training images, each overwritten by what its only cluster sees: held once."""
        x = self._dataset.train.x
        for c in range(1, self.clusters if self._changes else 1):
            used = np.sort(np.concatenate([held[i] for i in np.nonzero(cluster == c)[0]]))
            for start in range(0, len(used), _CHUNK):
                some = used[start : start + _CHUNK]
                where = torch.from_numpy(some)
                x[where] = self._changed(x[where], some, c, "train")
        return Holdings(self._dataset.train, np.arange(len(held)), held)

    def copied(self, held: list[Ids], cluster: Ids) -> Holdings:
        """Each training image once per cluster that holds it, for nodes that may share images."""
        parts: list[Labelled] = []
        renumbered: dict[int, Ids] = {}
        offset = 0
        for c in range(self.clusters):
            nodes = np.nonzero(cluster == c)[0].tolist()
            used = np.unique(np.concatenate([held[i] for i in nodes]))
            parts.append(self.seen("train", used, c))
            renumbered |= {i: np.searchsorted(used, held[i]) + offset for i in nodes}
            offset += len(used)
        samples = Labelled(torch.cat([p.x for p in parts]), torch.cat([p.y for p in parts]))
        return Holdings(samples, np.arange(len(held)), [renumbered[i] for i in range(len(held))])
