"""How values become inputs: what data.scale comes to, as numbers for every channel.

Samples are stored as they came: bytes as uint8, tokens as int64, all other numbers as float32, which holds 16 bits
exactly. A model gets (value - mean) / std, with a mean and a std for every channel of images and volumes, and every
value of rows; the scale "auto" divides bytes by 255 before that, and leaves rows of floats as they are.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from facade.data.errors import DataError
from facade.data.samples import Dataset, Scale, TypeRange

_CHUNK = 1024
"""Samples that are looked at at a time."""


class Normalisation(NamedTuple):
    """What stands in a data set about how its values become inputs."""

    scale: Scale
    mean: list[float]
    std: list[float]


def type_range(dtype: np.dtype[Any]) -> TypeRange | None:
    """The smallest and largest value of an integer type of 8 or 16 bits; None for all others."""
    if dtype.kind not in "ui" or dtype.itemsize > 2:
        return None
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)


def automatic(x: Tensor, bounds: TypeRange | None) -> Normalisation:
    """What "auto" is for samples x [N, ...] from a type with these bounds: bytes and unsigned 16 bits become [-1, 1],
    rows and all other values stay as they are."""
    if x.dtype == torch.uint8 or x.dim() == 2:
        half = [0.5] * (1 if x.dim() == 2 else x.shape[1])
        return Normalisation("auto", half, half)
    return _of_type(bounds) if bounds is not None and bounds[0] == 0 else Normalisation("none", [0.0], [1.0])


def _of_type(bounds: TypeRange) -> Normalisation:
    low, high = bounds
    return Normalisation("bits", [(low + high) / 2], [(high - low) / 2])


def scaled(dataset: Dataset, scale: Scale) -> Dataset:
    """The data set with what data.scale asks for; with "auto", as its source made it."""
    if scale == "auto":
        return dataset
    x = dataset.train.x if dataset.kept_back is None else dataset.train.x[torch.from_numpy(~dataset.kept_back)]
    if scale == "tokens":
        if x.dtype != torch.int64 or x.dim() != 2:
            raise DataError(
                f"data.scale = 'tokens' needs rows of whole numbers (N, values), but inputs are {x.dtype} of shape"
                f" {list(x.shape[1:])}; leave it out, or give npz or Python arrays of integers"
            )
        chosen = Normalisation("tokens", [0.0], [1.0])
    elif scale == "none":
        chosen = Normalisation("none", [0.0], [1.0])
    elif scale == "bits":
        bounds = (0, 255) if x.dtype == torch.uint8 else dataset.type_range
        if bounds is None:
            raise DataError(
                "data.scale = 'bits' needs integers of 8 or 16 bits, whose type says their range, but the inputs are"
                " others; use 'range' or 'standard'"
            )
        chosen = _of_type(bounds)
    else:
        chosen = _measured(x, scale)
    return dataclasses.replace(dataset, **chosen._asdict())


def _measured(x: Tensor, scale: Scale) -> Normalisation:
    """From the values x [N, channels, ...] themselves; a constant channel is only moved."""
    if scale == "range":
        low, high = (np.array([f(part) for part in _channels(x)]) for f in (_least, _most))
        mean, std = (low + high) / 2, (high - low) / 2
    else:
        parts = [_moments(part) for part in _channels(x)]
        mean, std = np.array([m for m, _ in parts]), np.array([s for _, s in parts])
    constant = np.array([_least(part) == _most(part) for part in _channels(x)])
    return Normalisation(scale, mean.tolist(), np.where(constant, 1.0, std).tolist())


def _channels(x: Tensor) -> list[NDArray[Any]]:
    return [x[:, channel].numpy() for channel in range(x.shape[1])]


def _least(values: NDArray[Any]) -> float:
    return float(values.min())


def _most(values: NDArray[Any]) -> float:
    return float(values.max())


def _moments(values: NDArray[Any]) -> tuple[float, float]:
    """Mean and standard deviation [N, ...] in float64, a part at a time."""
    starts = range(0, len(values), _CHUNK)
    mean = sum(float(values[i : i + _CHUNK].sum(dtype=np.float64)) for i in starts) / values.size
    squares = (((values[i : i + _CHUNK].astype(np.float64) - mean) ** 2).sum() for i in starts)
    return mean, float(np.sqrt(sum(squares) / values.size))
