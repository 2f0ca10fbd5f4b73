"""Sources made of folders of image files: one folder per class."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from facade.core.types import Ids
from facade.data.arrays import made
from facade.data.decoded import CACHE, Decoding, File, decoded, is_image
from facade.data.errors import DataError
from facade.data.partition import held_out
from facade.data.samples import Dataset, Labelled
from facade.data.section import DataSection

IMAGENETTE = {
    "n01440764": "tench",
    "n02102040": "English springer",
    "n02979186": "cassette player",
    "n03000684": "chain saw",
    "n03028079": "church",
    "n03394916": "French horn",
    "n03417042": "garbage truck",
    "n03425413": "gas pump",
    "n03445777": "golf ball",
    "n03888257": "parachute",
}
_IMAGENETTE_FOLDERS = ("imagenette2-160", "imagenette2-320", "imagenette2")
_IMAGENET_MEAN, _IMAGENET_STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
_MAMMALS = 41


def folder(data: DataSection) -> Dataset:
    """Your own image files: data.path holds one folder per class, or train and test (or val) of them."""
    if not data.path:
        raise DataError("source 'folder' needs data.path, the folder below data.root that holds the classes")
    place = Path(data.root) / data.path
    if not place.is_dir():
        raise DataError(f"{place} is not a folder; put your class folders there, or change data.path or data.root")
    return _read(place, data, data.channels)


def imagenette(data: DataSection) -> Dataset:
    """Imagenette: 9,469 + 3,925 photographs of 10 kinds of things, here 64x64 pixels."""
    places = [Path(data.root) / name for name in ((data.path,) if data.path else _IMAGENETTE_FOLDERS)]
    place = next((place for place in places if place.is_dir()), None)
    if place is None:
        raise DataError(
            f"Imagenette is not in {data.root}: run 'facade data get imagenette --root {data.root}', or unpack"
            f" imagenette2-160.tgz there, so that {places[0] / 'train'} exists"
        )
    names = _class_names(place)
    if names != sorted(IMAGENETTE):
        raise DataError(
            f"{place} holds the classes {', '.join(names[:3])}, ... but Imagenette's folders are"
            f" {', '.join(IMAGENETTE)}; get it again, or use source 'folder'"
        )
    folders = _read(place, data, 3)
    classes = [IMAGENETTE[name] for name in folders.classes]
    return dataclasses.replace(folders, classes=classes, mean=_IMAGENET_MEAN, std=_IMAGENET_STD)


def flickr_mammals(data: DataSection) -> Dataset:
    """Flickr-Mammals: 48,158 photographs of 41 mammals in one folder each, 80 % for training."""
    place = Path(data.root) / (data.path or "flickr-mammals")
    if not place.is_dir():
        raise DataError(
            f"Flickr-Mammals is not in {data.root}: get it from https://doi.org/10.5281/zenodo.3676081 and put its"
            f" {_MAMMALS} class folders into {place}"
        )
    count = len(_class_names(place))
    if count != _MAMMALS:
        raise DataError(
            f"{place} holds {count} class folders but Flickr-Mammals has {_MAMMALS};"
            " complete it, or use source 'folder'"
        )
    return _read(place, data, 3)


def _class_names(place: Path) -> list[str]:
    """The names of the class folders, sorted; they are looked at before anything is decoded."""
    place = place / "train" if (place / "train").is_dir() else place
    return sorted(entry.name for entry in _visible(place) if _is_folder(entry))


_SPLITS = {"train", "training", "test", "testing", "val", "valid", "validation"}
"""Names that no class has, in small letters."""


@dataclass(frozen=True)
class Listing:
    """The image files of one folder of class folders, class by class."""

    files: list[File]
    labels: Ids
    """[N] class numbers."""
    classes: list[str]
    """The names of the class folders, sorted."""
    strays: list[str]
    """Names of files that are no images, and are not used."""

    @property
    def notes(self) -> list[str]:
        """A sentence about the strays."""
        named = ", ".join(self.strays[:3]) + (f" and {len(self.strays) - 3} more" if len(self.strays) > 3 else "")
        return [f"{named}: no images, not used"] if self.strays else []


def _read(place: Path, data: DataSection, channels: Literal["auto", 1, 3]) -> Dataset:
    """The images of a folder, in training and test as its subfolders say, or cut by test_fraction."""
    how, cache = Decoding(data.size, channels), Path(data.root) / CACHE
    splits = {name: place / name for name in ("train", "test", "val") if (place / name).is_dir()}
    if "train" in splits:
        train, test = _two_listings(place, splits, data.root)
        x, bounds, notes = decoded(train.files + test.files, how, cache)
        cut = len(train.files)  # two views of one array: nothing is copied
        used = ("train", "test" if "test" in splits else "val")
        unused = sorted(entry.name for entry in _visible(place) if _is_folder(entry) and entry.name not in used)
        if unused:
            notes = [*notes, f"the images in {', '.join(unused)} are not used: {used[1]} is the test set"]
        parts = _samples(x[:cut], train), _samples(x[cut:], test)
        return dataclasses.replace(made(*parts, train.classes, bounds), notes=[*notes, *train.notes, *test.notes])
    listed = _listing(place, data.root, beside=True)
    testing = torch.from_numpy(held_out(listed.labels, data.test_fraction, 0, "test", least=1))
    for label, name in enumerate(listed.classes):
        if testing[torch.from_numpy(listed.labels == label)].all():
            raise DataError(f"class folder {place / name} holds too few images to train and test on; add some")
    x, bounds, notes = decoded(listed.files, how, cache)
    everything = _samples(x, listed)
    whole = made(everything[~testing], everything[testing], listed.classes, bounds)
    return dataclasses.replace(whole, tests_held_out=True, notes=[*notes, *listed.notes])


def _samples(x: Tensor, listed: Listing) -> Labelled:
    return Labelled(x, torch.from_numpy(listed.labels))


def _two_listings(place: Path, splits: dict[str, Path], root: str) -> tuple[Listing, Listing]:
    """The training and the test files, which must be of the same classes."""
    testing = splits.get("test", splits.get("val"))
    if testing is None:
        raise DataError(f"{place} has a folder train but neither test nor val; add one with the same classes")
    train, test = _listing(splits["train"], root), _listing(testing, root)
    for name in sorted(set(train.classes) ^ set(test.classes)):
        here, there = (splits["train"], testing) if name in train.classes else (testing, splits["train"])
        raise DataError(f"class '{name}' is in {here} but not in {there}; both need the same class folders")
    return train, test


def _listing(place: Path, root: str, beside: bool = False) -> Listing:
    """What a folder of class folders holds. With `beside`, files beside the class folders (a licence,
    a list) are left alone."""
    classes: list[str] = []
    files: list[File] = []
    counts: list[int] = []
    strays: list[str] = []
    base = Path(os.path.relpath(place, root)).as_posix()
    for entry in sorted(_visible(place), key=lambda e: e.name):
        if not _is_folder(entry):
            if beside:
                continue
            if is_image(entry.path):
                raise DataError(f"{entry.path} is not in a class folder; move it into one or remove it")
            strays.append(entry.name)
            continue
        for named in (entry, *_visible(entry.path)):
            if named.name.casefold() in _SPLITS and _is_folder(named):
                raise DataError(
                    f"{named.path} stands where a class is expected but is named like a part of the data; call such"
                    " folders train and test (or val), directly in data.path, with the class folders inside"
                )
        found = sorted(_below(entry.path, f"{base}/{entry.name}"), key=lambda f: f.name)
        own = [file for file in found if _is_meant(file)]
        strays += [file.name.removeprefix(f"{base}/") for file in found if not _is_meant(file)]
        if not own:
            raise DataError(f"class folder {entry.path} is empty; put images there or remove it")
        classes.append(entry.name)
        files += own
        counts.append(len(own))
    if not classes:
        raise DataError(f"{place} has no class folders; expected one folder of images per class")
    return Listing(files, np.repeat(np.arange(len(classes)), counts), classes, strays)


def _is_meant(file: File) -> bool:
    """Whether somebody put a file there as an image: a hidden one (._1.jpg) is the system's, whatever its name."""
    return not os.path.basename(file.path).startswith(".") and is_image(file.path)


def _visible(place: Path | str) -> Iterator[os.DirEntry[str]]:
    """What a person put there: hidden files and folders (.DS_Store) are the system's."""
    return (entry for entry in _entries(place) if not entry.name.startswith("."))


def _entries(place: Path | str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(place) as entries:
            yield from entries
    except OSError as error:
        raise DataError(f"{place} cannot be read ({error.strerror})") from None


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError as error:  # a link that leads back to itself, say
        raise DataError(f"{entry.path} cannot be read ({error.strerror}); mend or remove it") from None


def _below(place: str, name: str) -> Iterator[File]:
    """All files at any depth below a class folder; `name` is its path relative to the data root."""
    for entry in _entries(place):
        if _is_folder(entry):
            if entry.name.startswith("."):
                continue
            yield from _below(entry.path, f"{name}/{entry.name}")
        else:
            try:
                stat = entry.stat()
            except OSError as error:  # a link to nowhere, say
                raise DataError(f"{entry.path} cannot be read ({error.strerror}); fetch it or remove it") from None
            yield File(entry.path, f"{name}/{entry.name}", stat.st_size, stat.st_mtime_ns)
