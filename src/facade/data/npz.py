"""Sources from numpy archives: MedMNIST's layout and the plain x_train, y_train, x_test, y_test."""

from __future__ import annotations

import contextlib
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from facade.core.types import Ids
from facade.data.arrays import class_names, labelled, same_kind, scale
from facade.data.download import REMOTES
from facade.data.errors import DataError
from facade.data.partition import held_out
from facade.data.samples import Dataset, Labelled
from facade.data.section import DataSection

Arrays = Mapping[str, NDArray[Any]]

_MEDMNIST = ("{}_images", "{}_labels", "{}_nodes")
_PLAIN = ("x_{}", "y_{}", "nodes_{}")
"""Names of the inputs, labels and (optional) nodes of a split."""


def npz(data: DataSection) -> Dataset:
    """Your own arrays: data.path is a .npz file, MedMNIST's or with x_train, y_train, x_test, y_test."""
    if not data.path:
        raise DataError("source 'npz' needs data.path, the .npz file below data.root")
    path = Path(data.root) / data.path
    with _opened(path) as arrays:
        layout = _layout(arrays, path)
        train, node = _split(arrays, layout, "train", path)
        has_tests = layout[1].format("test") in arrays
        if has_tests:
            test, test_node = _split(arrays, layout, "test", path)
        else:
            by_node = node is not None and data.partition == "natural"
            train, test, node, test_node = _divided(train, node, by_node, data.test_fraction, path)
        names = [str(name) for name in arrays["classes"]] if "classes" in arrays else None
        unused = len(arrays[layout[1].format("val")]) if layout[1].format("val") in arrays else 0
    same_kind(train, test, f"{path}, test")
    classes = class_names(train.y, test.y, names, str(path))
    half = scale(train.x)
    notes = [f"the {unused} samples of the file's validation split are not used"] if unused else []
    return Dataset(
        train, test, classes, half, half, node=node, test_node=test_node, tests_held_out=not has_tests, notes=notes
    )


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Arrays]:
    """The arrays of a file, read when they are asked for; never pickled objects."""
    if not path.is_file():
        downloadable = next((name for name, remote in REMOTES.items() if remote.file == path.name), None)
        remedy = (
            f"run 'facade data get {downloadable} --root {path.parent}', or put it"
            if downloadable
            else "put your arrays"
        )
        raise DataError(f"{path} does not exist; {remedy} there, or change data.path or data.root")
    try:
        # numpy.load would take any other file for pickled objects, and say how to trust it.
        with path.open("rb") as file, np.lib.npyio.NpzFile(file, allow_pickle=False) as arrays:
            yield arrays
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError) as error:
        raise DataError(
            f"{path} cannot be read as a .npz file of plain arrays ({error}); make it with numpy.savez, or get it again"
        ) from None


def _layout(arrays: Arrays, path: Path) -> tuple[str, str, str]:
    for layout in (_MEDMNIST, _PLAIN):
        wanted = [name.format(split) for split in ("train", "test") for name in layout[:2]]
        present = [name for name in wanted if name in arrays]
        if present in (wanted, wanted[:2]):
            return layout
        if present:
            missing = next(name for name in wanted if name not in arrays)
            raise DataError(f"{path} has no {missing}; expected {', '.join(wanted)}, or the first two alone")
    raise DataError(
        f"{path} holds {', '.join(sorted(arrays)) or 'nothing'}; expected train_images, train_labels, test_images,"
        " test_labels (MedMNIST's layout) or x_train, y_train, x_test, y_test"
    )


def _divided(
    samples: Labelled, node: Ids | None, by_node: bool, fraction: float, path: Path
) -> tuple[Labelled, Labelled, Ids | None, Ids | None]:
    """Training and test samples of a file that has no test split, and the nodes of both: a part of every class,
    or, by node, of every node's samples."""
    strata = node if by_node and node is not None else samples.y.numpy()
    out = held_out(strata, fraction, 0, "test", least=int(by_node))
    if not out.any():
        raise DataError(f"{path} has no test split, and data.test_fraction = {fraction} of it is no sample; raise it")
    spent = np.setdiff1d(strata[out], strata[~out])
    if by_node and len(spent):
        raise DataError(
            f"{path} has no test split, and node {spent[0]} has too few samples for a training and a test part;"
            " give it more, leave it out, or add test arrays"
        )
    rows = torch.from_numpy(out)
    return samples[~rows], samples[rows], None if node is None else node[~out], None if node is None else node[out]


def _split(arrays: Arrays, layout: tuple[str, str, str], split: str, path: Path) -> tuple[Labelled, Ids | None]:
    """The samples of a split and, if the file says so, the node of each."""
    x, y, nodes = (name.format(split) for name in layout)
    samples = labelled(arrays[x], arrays[y], f"{path}, {split}", copy=False)
    if nodes not in arrays:
        return samples, None
    owner = np.asarray(arrays[nodes])
    if owner.shape != (len(samples),) or owner.dtype.kind not in "ui":
        raise DataError(
            f"{path}: {nodes} is {owner.dtype} {list(owner.shape)}; expected one node number for each of"
            f" {len(samples)} samples"
        )
    return samples, owner.astype(np.int64)
