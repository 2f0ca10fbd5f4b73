"""From arrays that somebody gives us to checked samples."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from facade.core.types import Ids
from facade.data.errors import DataError
from facade.data.partition import held_out
from facade.data.samples import Dataset, Labelled, TypeRange
from facade.data.scales import automatic, type_range
from facade.data.section import DataSection

Array = NDArray[Any] | Tensor


def labelled(x: Array, y: Array, what: str, copy: bool = True, tokens: bool = False) -> Labelled:
    """Checked samples, with memory of their own if `copy`; `what` names them in refusals. With `tokens`, rows of
    whole numbers stay whole numbers."""
    inputs = _tokens(_numpy(x, what), what) if tokens else _inputs(_numpy(x, what), what)
    labels = _labels(_numpy(y, what), what)
    inputs = np.array(inputs, order="C") if copy else np.ascontiguousarray(inputs)
    if len(inputs) != len(labels):
        raise DataError(f"{what}: {len(inputs)} inputs but {len(labels)} labels; there must be one label per input")
    if not len(labels):
        raise DataError(f"{what}: no samples; there must be at least one")
    return Labelled(torch.from_numpy(inputs), torch.from_numpy(labels))


def _numpy(array: Array, what: str) -> NDArray[Any]:
    if isinstance(array, Tensor):
        array = array.detach().cpu()
        return (array.float() if array.dtype == torch.bfloat16 else array).numpy()
    try:
        made = np.asarray(array)
    except ValueError:  # of lists that are not equally long
        made = np.empty(0, np.object_)
    if made.dtype == np.object_:
        raise DataError(f"{what}: samples have different shapes, or are no numbers; all must be alike")
    return made


def _inputs(x: NDArray[Any], what: str) -> NDArray[Any]:
    """Images [N, C, H, W] and volumes [N, C, D, H, W] of uint8 or float32, or float32 rows [N, values]."""
    if not 2 <= x.ndim <= 5 or x.dtype.kind not in "uifb":
        raise DataError(
            f"{what}: inputs of type {x.dtype} and shape {list(x.shape)}; expected numbers: images (N, H, W),"
            " (N, H, W, C) or (N, C, H, W), volumes (N, C, D, H, W) or rows (N, values)"
        )
    if x.ndim > 2 and x.dtype == np.uint8:
        return _channels_first(x)
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused
        values = _channels_first(x).astype(np.float32)
    finite = np.isfinite(values).all(tuple(range(1, values.ndim)))
    if not finite.all():
        raise DataError(f"{what}: row {int(np.nonzero(~finite)[0][0])} holds NaN or infinity")
    return values


def _tokens(x: NDArray[Any], what: str) -> NDArray[Any]:
    """int64 rows [N, values]."""
    if x.ndim != 2 or x.dtype.kind not in "ui" or (x.size and x.min() < 0):
        raise DataError(
            f"{what}: data.scale = 'tokens', but inputs are of type {x.dtype} and shape {list(x.shape)}; expected"
            " rows (N, values) of whole numbers from 0 on"
        )
    return x.astype(np.int64)


def _channels_first(x: NDArray[Any]) -> NDArray[Any]:
    """Images [N, C, H, W]; rows and volumes stay as they are. Where both readings of four axes are possible, axis 1
    holds the channels, unless only the last one can: there are 1 or 3, or else images are square, or channels few."""
    if x.ndim == 3:
        return x[:, None]
    if x.ndim != 4 or x.shape[1] in (1, 3):
        return x
    _, first, height, last = x.shape
    square, square_last = height == last, first == height
    if last in (1, 3) or (square_last and not square) or (square == square_last and last < first):
        return x.transpose(0, 3, 1, 2)
    return x


def common_range(arrays: Sequence[Array], what: str) -> TypeRange | None:
    """The range of the integer type that all inputs have; DataError for images, or volumes, of several types."""
    dtypes = {_numpy(array, what).dtype for array in arrays}
    ranges = {type_range(dtype) for dtype in dtypes}
    if len(ranges) == 1:
        return ranges.pop()
    if _numpy(arrays[0], what).ndim > 2:
        names = " and ".join(sorted(map(str, dtypes)))
        raise DataError(f"{what}: inputs of the types {names}; all inputs must be alike: convert some of them")
    return None


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
    if names is not None and (twice := sorted({str(name) for name in names if list(names).count(name) > 1})):
        raise DataError(f"{what}: two classes are named '{twice[0]}'; give every class a name of its own")
    unknown = np.setdiff1d(test.numpy(), train.numpy())
    if len(unknown):
        raise DataError(f"{what}: class {unknown[0]} is in the test but not in the training data")
    return [str(c) for c in range(count)] if names is None else [str(name) for name in names]


def dataset(
    x: Array, y: Array, x_test: Array | None, y_test: Array | None, classes: Sequence[str] | None, data: DataSection
) -> Dataset:
    """One data set from training and, perhaps, test arrays."""
    tokens, fraction = data.scale == "tokens", data.test_fraction
    train = labelled(x, y, "x, y", tokens=tokens)
    if x_test is None or y_test is None:
        if x_test is not None or y_test is not None:
            raise DataError("x_test and y_test belong together; give both or neither")
        out = torch.from_numpy(held_out(train.y.numpy(), fraction, 0, "test"))
        if not out.any():
            raise DataError(f"test_fraction = {fraction} leaves no test sample; give test arrays or a larger fraction")
        train, test = train[~out], train[out]
    else:
        test = labelled(x_test, y_test, "x_test, y_test", tokens=tokens)
    same_kind(train, test, "x_test")
    bounds = common_range([x] if x_test is None else [x, x_test], "x, x_test")
    return made(train, test, class_names(train.y, test.y, classes, "y, y_test"), bounds)


def made(train: Labelled, test: Labelled, classes: list[str], bounds: TypeRange | None) -> Dataset:
    """A data set of samples from a type with these bounds, scaled as by "auto"."""
    return Dataset(train, test, classes, type_range=bounds, **automatic(train.x, bounds)._asdict())


def same_kind(first: Labelled, second: Labelled, what: str) -> None:
    """Refuse inputs of two shapes or types in one data set."""
    if first.x.shape[1:] != second.x.shape[1:] or first.x.dtype != second.x.dtype:
        raise DataError(
            f"{what}: inputs of shape {list(second.x.shape[1:])} ({second.x.dtype}) where the others have"
            f" {list(first.x.shape[1:])} ({first.x.dtype}); all inputs must be alike"
        )


def natural_dataset(
    nodes: Sequence[tuple[Array, ...]],
    test: tuple[Array, Array] | None,
    classes: Sequence[str] | None,
    tokens: bool = False,
) -> Dataset:
    """The data of many nodes as one data set that remembers who holds what."""
    if not nodes:
        raise DataError("a federation needs at least one node; the list is empty")
    own = _check_tests(nodes, test)
    parts = [labelled(part[0], part[1], f"node {i}", tokens=tokens) for i, part in enumerate(nodes)]
    if own:
        tests = [labelled(part[2], part[3], f"node {i}, test", tokens=tokens) for i, part in enumerate(nodes)]
    else:
        tests = [labelled(*test, "test", tokens=tokens)] if test else []
    for i, part in enumerate([*parts, *tests]):
        same_kind(parts[0], part, f"node {i}" if i < len(parts) else "test")
    train, tested = _joined(parts), _joined(tests)
    inputs = [array for part in nodes for array in part[::2]] + ([test[0]] if test else [])
    names = class_names(train.y, tested.y, classes, "labels")
    whole = made(train, tested, names, common_range(inputs, "nodes"))
    return dataclasses.replace(whole, node=_owners(parts), test_node=_owners(tests) if own else None)


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
