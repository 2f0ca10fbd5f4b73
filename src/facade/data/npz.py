"""Sources from numpy archives: MedMNIST's layout and the plain x_train, y_train, x_test, y_test."""

from __future__ import annotations

import contextlib
import dataclasses
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from facade.core.types import Ids
from facade.data.arrays import class_names, cluster_numbers, common_range, labelled, made, same_kind
from facade.data.download import REMOTES
from facade.data.errors import DataError
from facade.data.partition import held_out
from facade.data.samples import Dataset, Labelled
from facade.data.section import DataSection
from facade.data.site_names import checked_names

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
        tokens = data.scale == "tokens"
        train, node, *inputs = _split(arrays, layout, "train", path, tokens)
        has_tests = layout[1].format("test") in arrays
        if has_tests:
            test, test_node, raw = _split(arrays, layout, "test", path, tokens)
            inputs.append(raw)
        else:
            by_node = node is not None and data.partition == "natural"
            train, test, node, test_node = _divided(train, node, by_node, data.test_fraction, path)
        names = [str(name) for name in arrays["classes"]] if "classes" in arrays else None
        sites, cluster = _sites(arrays, node, path)
        unused = len(arrays[layout[1].format("val")]) if layout[1].format("val") in arrays else 0
    same_kind(train, test, f"{path}, test")
    classes = class_names(train.y, test.y, names, str(path))
    notes = [f"the {unused} samples of the file's validation split are not used"] if unused else []
    return dataclasses.replace(
        made(train, test, classes, common_range(inputs, str(path))),
        node=node,
        test_node=test_node,
        tests_held_out=not has_tests,
        notes=notes,
        sites=sites,
        cluster_of_site=cluster,
    )


def _sites(arrays: Arrays, node: Ids | None, path: Path) -> tuple[list[str] | None, Ids | None]:
    """The names of the nodes, and the cluster of each, where the file has them."""
    if "sites" not in arrays and "cluster_of_site" not in arrays:
        return None, None
    if node is None:
        raise DataError(f"{path} names sites but not whose a sample is; add nodes_train, a number for every sample")
    n = int(node.max()) + 1
    names = checked_names([str(name) for name in arrays["sites"]], n) if "sites" in arrays else None
    return names, cluster_numbers(arrays["cluster_of_site"].tolist(), n) if "cluster_of_site" in arrays else None


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


def _split(
    arrays: Arrays, layout: tuple[str, str, str], split: str, path: Path, tokens: bool
) -> tuple[Labelled, Ids | None, NDArray[Any]]:
    """The samples of a split, if the file says so the node of each, and the inputs as they are in the file."""
    x, y, nodes = (name.format(split) for name in layout)
    raw = arrays[x]
    samples = labelled(raw, arrays[y], f"{path}, {split}", copy=False, tokens=tokens)
    if nodes not in arrays:
        return samples, None, raw
    owner = np.asarray(arrays[nodes])
    if owner.shape != (len(samples),) or owner.dtype.kind not in "ui":
        raise DataError(
            f"{path}: {nodes} is {owner.dtype} {list(owner.shape)}; expected one node number for each of"
            f" {len(samples)} samples"
        )
    return samples, owner.astype(np.int64), raw
