"""Where data come from: one function and one row of SOURCES each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from facade.core import seeds
from facade.data.cifar import cifar10
from facade.data.domains import office_caltech10, pacs
from facade.data.folders import flickr_mammals, folder, imagenette
from facade.data.heart_disease import heart_disease
from facade.data.matlab import landmine, office_caltech10_surf
from facade.data.npz import npz
from facade.data.samples import Dataset, Labelled
from facade.data.section import DataSection
from facade.data.sites import Sites
from facade.data.synthetic import synthetic
from facade.data.tables import csv, parquet
from facade.errors import ExperimentError

Source = Callable[["DataSection"], Dataset | Sites]


def digits(data: DataSection) -> Dataset:
    """1,797 real handwritten digits of 8x8 pixels, shipped with scikit-learn: no download.

    Pixel values 0-16 are stored times 15. The test split is every class's last fifth after one
    fixed shuffle, the same for all seeds. A digit turned by 180 degrees can be another one (6, 9).
    """
    from sklearn.datasets import load_digits

    raw: Any = load_digits()
    x = torch.from_numpy((raw.images * 15).astype(np.uint8)).unsqueeze(1)
    y = torch.from_numpy(raw.target.astype(np.int64))
    order = seeds.permutation(0, "digits", len(y))
    test: list[int] = []
    for label in range(10):
        rows = order[raw.target[order] == label]
        test += rows[len(rows) - len(rows) // 5 :].tolist()
    held_out = torch.zeros(len(y), dtype=torch.bool)
    held_out[torch.tensor(test)] = True
    everything = Labelled(x, y)
    return Dataset(everything[~held_out], everything[held_out], [str(d) for d in range(10)], [0.5], [0.5])


def given(data: DataSection) -> Dataset:
    """A federation made in Python and passed along: run(experiment, federation=...)."""
    raise ExperimentError(
        "data.source = 'given' stands for a federation made in Python; pass it: run(experiment, federation=...)"
    )


SOURCES: dict[str, Source] = {
    "digits": digits,
    "cifar10": cifar10,
    "imagenette": imagenette,
    "flickr-mammals": flickr_mammals,
    "landmine": landmine,
    "heart-disease": heart_disease,
    "pacs": pacs,
    "office-caltech10": office_caltech10,
    "office-caltech10-surf": office_caltech10_surf,
    "folder": folder,
    "npz": npz,
    "csv": csv,
    "parquet": parquet,
    "synthetic": synthetic,
    "given": given,
}
