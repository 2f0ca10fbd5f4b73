"""CIFAR-10 in its official forms: the binary version first, Python pickles only if they are genuine."""

from __future__ import annotations

import hashlib
import io
import pickle
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from facade.data.errors import DataError
from facade.data.samples import Dataset, Labelled
from facade.data.section import DataSection

CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
GROUPS = [[0, 1, 8, 9], [2, 3, 4, 5, 6, 7]]
"""Vehicles and animals."""
RECORDS = 10_000
"""Images per file."""
_PIXELS = 3 * 32 * 32

TRAIN = [f"data_batch_{i}" for i in range(1, 6)]
TEST = "test_batch"
PICKLE_MD5 = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}
"""Published checksums of the Python version's files."""

Bytes = NDArray[np.uint8]
Batch = tuple[Bytes, Bytes]
"""Planes [records, 3072] and labels [records]."""
Reader = Callable[[str, bytes], Batch]


def cifar10(data: DataSection) -> Dataset:
    """CIFAR-10: 50,000 + 10,000 colour images of 32x32 pixels in 10 classes."""
    root = Path(data.root)
    forms: list[tuple[Path, str, Reader]] = [
        (root / "cifar-10-batches-bin", ".bin", read_binary),
        (root / "cifar-10-binary.tar.gz", ".bin", read_binary),
        (root / "cifar-10-batches-py", "", read_pickle),
        (root / "cifar-10-python.tar.gz", "", read_pickle),
    ]
    for place, suffix, reader in forms:
        if place.exists():
            return _dataset(place, suffix, reader)
    raise DataError(
        f"CIFAR-10 is not in {root}: run 'facade data get cifar10 --root {root}', or put"
        f" cifar-10-binary.tar.gz (or its folder cifar-10-batches-bin) there"
    )


def _dataset(place: Path, suffix: str, reader: Reader) -> Dataset:
    x = np.empty((len(TRAIN), RECORDS, 3, 32, 32), np.uint8)
    y = np.empty((len(TRAIN), RECORDS), np.int64)
    test_x, test_y = np.empty_like(x[0]), np.empty_like(y[0])
    wanted = dict(zip([*TRAIN, TEST], [*zip(x, y, strict=True), (test_x, test_y)], strict=True))
    for name, content in _files(place, suffix):
        if name not in wanted:
            continue
        planes, labels = reader(f"{place}: {name}{suffix}", content)
        images, classes = wanted.pop(name)
        images[:], classes[:] = planes.reshape(images.shape), labels
    if wanted:
        missing = f"{next(iter(wanted))}{suffix}"
        raise DataError(f"{place} has no {missing}; get the official archive again: 'facade data get cifar10'")
    return Dataset(
        Labelled(torch.from_numpy(x.reshape(-1, 3, 32, 32)), torch.from_numpy(y.reshape(-1))),
        Labelled(torch.from_numpy(test_x), torch.from_numpy(test_y)),
        list(CLASSES),
        [0.5] * 3,
        [0.5] * 3,
        groups=[list(group) for group in GROUPS],
    )


def _files(place: Path, suffix: str) -> Iterator[tuple[str, bytes]]:
    """(name without suffix, content) of the files in a folder or an archive. An archive is read
    member by member and never unpacked, so its paths cannot do harm."""
    if place.is_dir():
        yield from ((name, path.read_bytes()) for name in [*TRAIN, TEST] if (path := place / (name + suffix)).is_file())
        return
    try:
        with tarfile.open(place, "r:gz") as archive:
            for member in archive:
                base = member.name.rpartition("/")[2]
                content = archive.extractfile(member) if member.isfile() and base.endswith(suffix) else None
                if content is not None and base.removesuffix(suffix) in (*TRAIN, TEST):
                    yield base.removesuffix(suffix), content.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise DataError(
            f"{place} is damaged or cut short ({error}); remove it and run 'facade data get cifar10' again"
        ) from None


def read_binary(where: str, content: bytes) -> Batch:
    """A file of the binary version: per image one byte of label and 3,072 of red, green, blue."""
    if len(content) != RECORDS * (1 + _PIXELS):
        raise DataError(
            f"{where} has {len(content):,} bytes where {RECORDS * (1 + _PIXELS):,} are expected: it is cut short"
            " or not CIFAR-10's binary version; get the official archive again: 'facade data get cifar10'"
        )
    table = np.frombuffer(content, np.uint8).reshape(RECORDS, 1 + _PIXELS)
    return table[:, 1:], _checked(where, table[:, 0])


def _checked(where: str, labels: Bytes) -> Bytes:
    if labels.max() >= len(CLASSES):
        raise DataError(f"{where} holds label {labels.max()}; CIFAR-10 has classes 0 to {len(CLASSES) - 1}")
    return labels


def read_pickle(where: str, content: bytes) -> Batch:
    """A file of the Python version. Unpickling can run code, so anything but the official bytes is
    refused before it is looked at, and even those may name nothing but what an array needs."""
    name = where.rpartition(" ")[2]
    if hashlib.md5(content, usedforsecurity=False).hexdigest() != PICKLE_MD5[name]:
        raise DataError(
            f"{where} is not the official file (its MD5 differs from the published {PICKLE_MD5[name]}), and a pickle"
            " of unknown origin can run code; use the binary version: 'facade data get cifar10'"
        )
    try:
        batch = _ArraysOnly(io.BytesIO(content), encoding="bytes").load()
        planes, labels = np.asarray(batch[b"data"]), np.asarray(batch[b"labels"])
    except (pickle.UnpicklingError, EOFError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{where} cannot be read ({error}); use the binary version: 'facade data get cifar10'"
        ) from None
    if planes.shape != (RECORDS, _PIXELS) or planes.dtype != np.uint8 or labels.shape != (RECORDS,):
        raise DataError(f"{where} holds {planes.dtype} {list(planes.shape)}; expected uint8 [{RECORDS}, {_PIXELS}]")
    return planes, _checked(where, labels.astype(np.uint8))


class _ArraysOnly(pickle.Unpickler):
    """An unpickler that can make numpy arrays and nothing else."""

    _ALLOWED: ClassVar[dict[tuple[str, str], Any]] = {
        ("numpy", "ndarray"): np.ndarray,
        # The official files pass 0 and 1 where today's numpy wants False and True.
        ("numpy", "dtype"): lambda name, align, copy: np.dtype(name, bool(align), bool(copy)),
        # The name of numpy's own maker of arrays moved in numpy 2; an array still knows it.
        ("numpy.core.multiarray", "_reconstruct"): np.zeros(0).__reduce__()[0],
        ("numpy._core.multiarray", "_reconstruct"): np.zeros(0).__reduce__()[0],
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no array needs")
        return self._ALLOWED[module, name]
