"""From arrays that somebody gives us to checked samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from facade.core.types import Ids
from facade.data.errors import DataError
from facade.data.partition import held_out
from facade.data.samples import Dataset, Labelled

Array = NDArray[Any] | Tensor


def labelled(x: Array, y: Array, what: str, copy: bool = True) -> Labelled:
    """Checked samples, with memory of their own if `copy`; `what` names them in refusals."""
    inputs, labels = _inputs(_numpy(x), what), _labels(_numpy(y), what)
    inputs = np.array(inputs, order="C") if copy else np.ascontiguousarray(inputs)
    if len(inputs) != len(labels):
        raise DataError(f"{what}: {len(inputs)} inputs but {len(labels)} labels; there must be one label per input")
    if not len(labels):
        raise DataError(f"{what}: no samples; there must be at least one")
    return Labelled(torch.from_numpy(inputs), torch.from_numpy(labels))


def _numpy(array: Array) -> NDArray[Any]:
    return array.detach().cpu().numpy() if isinstance(array, Tensor) else np.asarray(array)


def _inputs(x: NDArray[Any], what: str) -> NDArray[Any]:
    """uint8 images [N, C, H, W] or float32 rows [N, values]."""
    if x.ndim == 2 and x.dtype.kind in "uifb":
        rows = x.astype(np.float32)
        if not np.isfinite(rows).all():
            raise DataError(f"{what}: row {int(np.nonzero(~np.isfinite(rows).all(1))[0][0])} holds NaN or infinity")
        return rows
    if x.ndim in (3, 4) and x.dtype == np.uint8:
        return _channels_first(x, what)
    remedy = "; of images with values 0 to 1, give (255 * x).round().astype('uint8')" if x.dtype.kind == "f" else ""
    raise DataError(
        f"{what}: inputs of type {x.dtype} and shape {list(x.shape)}; expected uint8 images (N, H, W),"
        f" (N, H, W, C) or (N, C, H, W) with values 0 to 255, or rows of numbers (N, values){remedy}"
    )


def _channels_first(x: NDArray[Any], what: str) -> NDArray[Any]:
    """Images [N, C, H, W]. Where both readings are possible, axis 1 holds the channels."""
    if x.ndim == 3:
        return x[:, None]
    if x.shape[1] in (1, 3):
        return x
    if x.shape[3] in (1, 3):
        return x.transpose(0, 3, 1, 2)
    raise DataError(f"{what}: images of shape {list(x.shape[1:])} have neither 1 nor 3 channels; convert them first")


def _labels(y: NDArray[Any], what: str) -> Ids:
    if y.ndim == 2 and y.shape[1] == 1:  # as MedMNIST stores them
        y = y[:, 0]
    if y.ndim != 1:
        raise DataError(f"{what}: labels of shape {list(y.shape)}; expected one class number per input")
    if y.dtype.kind not in "ui":
        raise DataError(f"{what}: labels of type {y.dtype}; expected class numbers 0, 1, 2, ...")
    if len(y) and y.min() < 0:
        raise DataError(f"{what}: label {y.min()} is out of range; class numbers begin at 0")
    return y.astype(np.int64)


def class_names(train: Tensor, test: Tensor, names: Sequence[str] | None, what: str) -> list[str]:
    """One name per class, after checking that all labels are among them and can be learned. Without names given,
    classes are those of the training labels, which must be 0, 1, 2, ... without a gap."""
    if names is None:
        present = np.unique(train.numpy())
        if present[-1] != len(present) - 1:
            missing = int(np.nonzero(present != np.arange(len(present)))[0][0])
            raise DataError(
                f"{what}: no training sample has class {missing}, but one has class {present[-1]}; number classes 0, 1,"
                " 2, ... without a gap, or give their names"
            )
    count = int(train.max()) + 1 if names is None else len(names)
    for split, labels in (("training", train), ("test", test)):
        if int(labels.max()) >= count:
            raise DataError(
                f"{what}: {split} label {int(labels.max())} is out of range; the classes are 0 to {count - 1}"
            )
    unknown = np.setdiff1d(test.numpy(), train.numpy())
    if len(unknown):
        raise DataError(f"{what}: class {unknown[0]} is in the test but not in the training data")
    return [str(c) for c in range(count)] if names is None else [str(name) for name in names]


def scale(x: Tensor) -> list[float]:
    """The mean, and std, that brings images to [-1, 1]: 0.5 per channel."""
    return [0.5] * (x.shape[1] if x.dim() == 4 else 1)


def dataset(
    x: Array, y: Array, x_test: Array | None, y_test: Array | None, classes: Sequence[str] | None, fraction: float
) -> Dataset:
    """One data set from training and, perhaps, test arrays."""
    train = labelled(x, y, "x, y")
    if x_test is None or y_test is None:
        if x_test is not None or y_test is not None:
            raise DataError("x_test and y_test belong together; give both or neither")
        out = torch.from_numpy(held_out(train.y.numpy(), fraction, 0, "test"))
        if not out.any():
            raise DataError(f"test_fraction = {fraction} leaves no test sample; give test arrays or a larger fraction")
        train, test = train[~out], train[out]
    else:
        test = labelled(x_test, y_test, "x_test, y_test")
    same_kind(train, test, "x_test")
    half = scale(train.x)
    return Dataset(train, test, class_names(train.y, test.y, classes, "y, y_test"), half, half)


def same_kind(first: Labelled, second: Labelled, what: str) -> None:
    """Refuse inputs of two shapes or types in one data set."""
    if first.x.shape[1:] != second.x.shape[1:] or first.x.dtype != second.x.dtype:
        raise DataError(
            f"{what}: inputs of shape {list(second.x.shape[1:])} ({second.x.dtype}) where the others have"
            f" {list(first.x.shape[1:])} ({first.x.dtype}); all inputs must be alike"
        )


def natural_dataset(
    nodes: Sequence[tuple[Array, ...]], test: tuple[Array, Array] | None, classes: Sequence[str] | None
) -> Dataset:
    """The data of many nodes as one data set that remembers who holds what."""
    if not nodes:
        raise DataError("a federation needs at least one node; the list is empty")
    own = _check_tests(nodes, test)
    parts = [labelled(part[0], part[1], f"node {i}") for i, part in enumerate(nodes)]
    if own:
        tests = [labelled(part[2], part[3], f"node {i}, test") for i, part in enumerate(nodes)]
    else:
        tests = [labelled(*test, "test")] if test else []
    for i, part in enumerate([*parts, *tests]):
        same_kind(parts[0], part, f"node {i}" if i < len(parts) else "test")
    train, tested = _joined(parts), _joined(tests)
    half = scale(train.x)
    names = class_names(train.y, tested.y, classes, "labels")
    return Dataset(train, tested, names, half, half, node=_owners(parts), test_node=_owners(tests) if own else None)


def _check_tests(nodes: Sequence[tuple[Array, ...]], test: tuple[Array, Array] | None) -> bool:
    """Whether every node brings its own test set."""
    sizes = {len(part) for part in nodes}
    if sizes == {4} and test is None:
        return True
    if sizes == {2} and test is not None:
        return False
    raise DataError(
        "every node needs a test set: give (x, y, x_test, y_test) for all nodes, or (x, y) for all nodes"
        " and one test=(x, y)"
    )


def _joined(parts: list[Labelled]) -> Labelled:
    return Labelled(torch.cat([p.x for p in parts]), torch.cat([p.y for p in parts]))


def _owners(parts: list[Labelled]) -> Ids:
    return np.repeat(np.arange(len(parts)), [len(p) for p in parts])


def cluster_numbers(clusters: Sequence[int] | None, n: int) -> Ids:
    """[n] cluster of every node; all zero where nothing is known."""
    if clusters is None:
        return np.zeros(n, np.int64)
    try:
        numbers = np.asarray(clusters, np.int64)
    except (TypeError, ValueError):
        raise DataError(f"clusters {list(clusters)} are no numbers; give 0, 1, 2, ..., one per node") from None
    if len(numbers) != n:
        raise DataError(f"clusters names {len(numbers)} nodes but there are {n}; give one number per node")
    if not np.array_equal(np.unique(numbers), np.arange(numbers.max() + 1)):
        raise DataError(f"clusters {sorted(set(numbers.tolist()))} leave a gap; number them 0, 1, 2, ...")
    return numbers
