"""Federations in MATLAB files: land mines, and the histograms of Office-Caltech."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from facade.data.errors import DataError
from facade.data.section import DataSection
from facade.data.sites import Sites, standardised

FOLIATED, FIELDS = 15, 29
OBJECTS = [
    "backpack", "bike", "calculator", "headphones", "keyboard", "laptop", "monitor", "mouse", "mug", "projector",
]  # fmt: skip
"""The classes of Office-Caltech."""
DOMAINS = ["amazon", "caltech", "dslr", "webcam"]
"""Its domains; files and folders may call the second caltech10."""


def landmine(data: DataSection) -> Sites:
    """Land mines: 29 fields seen by radar, 9 values, mine or clutter; no licence stated.

    Fields 1 to 15 are foliated, 16 to 29 bare earth or desert.
    """
    path = Path(data.root) / (data.path or "LandmineData.mat")
    if not path.is_file():
        raise DataError(
            f"the land mines are not in {data.root}: put LandmineData.mat (Xue et al., JMLR 2007) there, or change"
            " data.root or data.path"
        )
    arrays = _arrays(path, "feature", "label")
    features, labels = (list(arrays[name].ravel()) for name in ("feature", "label"))
    if len(features) != FIELDS or len(labels) != FIELDS:
        raise DataError(f"{path} has {len(features)} fields; expected {FIELDS}: get LandmineData.mat again")
    parts = [_rows(*field, f"{path}, field {i}") for i, field in enumerate(zip(features, labels, strict=True), 1)]
    names = [f"field {i} ({'foliated' if i <= FOLIATED else 'bare'})" for i in range(1, FIELDS + 1)]
    return _joined(parts, names, ["clutter", "mine"])


def office_caltech10_surf(data: DataSection) -> Sites:
    """Office-Caltech as histograms of 800 SURF words: 4 domains, 10 classes; no licence stated.

    Each histogram is divided by its sum.
    """
    place = Path(data.root) / (data.path or "office-caltech10-surf")
    parts = []
    for domain in DOMAINS:
        path = _file_of(place, domain)
        arrays = _arrays(path, "fts", "labels")
        x, y = _rows(arrays["fts"], arrays["labels"].astype(np.int64) - 1, str(path))
        if y.min() < 0 or y.max() >= len(OBJECTS):
            raise DataError(f"{path} has labels {y.min() + 1} to {y.max() + 1}; expected 1 to {len(OBJECTS)}")
        parts.append((x / np.maximum(x.sum(1, keepdims=True), 1), y))
    return _joined(parts, DOMAINS, OBJECTS, domains=True)


def _file_of(place: Path, domain: str) -> Path:
    """The file of a domain: amazon.mat, Caltech10_SURF_L10.mat, ..."""
    found = sorted(path for path in place.glob("*.mat") if path.name.lower().startswith(domain))
    if not found:
        raise DataError(
            f"{place} has no file of the domain {domain}; put amazon.mat, caltech10.mat, dslr.mat and webcam.mat (Gong"
            " et al., CVPR 2012) there, or change data.root or data.path"
        )
    return found[0]


def _arrays(path: Path, *names: str) -> dict[str, NDArray[Any]]:
    """The named variables of a MATLAB file."""
    from scipy.io import loadmat

    try:
        content = loadmat(path, variable_names=names)
    except Exception as error:  # the reader of a damaged file stumbles over anything
        raise DataError(f"{path} cannot be read as a MATLAB file of version 5 ({error}); get it again") from None
    for name in names:
        if name not in content:
            raise DataError(f"{path} has no variable {name}; expected {' and '.join(names)}: get it again")
    return {name: content[name] for name in names}


def _rows(x: NDArray[Any], y: NDArray[Any], what: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Checked rows [N, values] and labels [N]."""
    labels = np.asarray(y).ravel()
    if getattr(x, "ndim", 0) != 2 or x.dtype.kind not in "uif" or labels.dtype.kind not in "uif":
        raise DataError(f"{what} holds no rows of numbers with a label each; get the file again")
    if len(x) != len(labels) or not len(x) or not np.isfinite(x).all() or (labels != labels.astype(np.int64)).any():
        raise DataError(f"{what} holds {len(x)} rows and {len(labels)} labels; expected one each, all of them numbers")
    return x.astype(np.float32), labels.astype(np.int64)


def _joined(
    parts: list[tuple[NDArray[np.float32], NDArray[np.int64]]],
    names: list[str],
    classes: list[str],
    domains: bool = False,
) -> Sites:
    x, y = (np.concatenate(each) for each in zip(*parts, strict=True))
    site = np.repeat(np.arange(len(parts)), [len(labels) for _, labels in parts])
    rows = standardised(torch.from_numpy(x))
    return Sites(rows, y, site, list(names), list(classes), domains=domains, standardised=True)
