"""Federations of images from several domains: one folder for each domain, in it one for each class."""

from __future__ import annotations

import contextlib
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from facade.data.decoded import CACHE, Decoding, File, decoded
from facade.data.errors import DataError
from facade.data.matlab import DOMAINS, OBJECTS
from facade.data.section import DataSection
from facade.data.sites import Sites, as_they_are

_IMAGES = (".jpg", ".jpeg", ".png", ".bmp")


@dataclass(frozen=True)
class _Kind:
    """What a distribution is called, and what its folders are."""

    title: str
    places: Sequence[str]
    """Folders and zip files below the data root, the first that is there is read."""
    domains: Sequence[str]
    classes: Sequence[str]
    aliases: Mapping[str, str]
    """Other names of folders."""
    origin: str


_PACS = _Kind(
    "PACS",
    ("PACS", "pacs", "kfold", "PACS.zip", "pacs.zip", "pacs64.zip"),
    ("art_painting", "cartoon", "photo", "sketch"),
    ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person"),
    {},
    "Li et al., ICCV 2017",
)
_OFFICE = _Kind(
    "Office-Caltech",
    (
        "office-caltech10", "office_caltech_10", "office-caltech10.zip", "office_caltech_10.zip",
        "office_caltech10_64.zip",
    ),
    DOMAINS,
    OBJECTS,
    {"caltech10": "caltech", "back_pack": "backpack", "laptop_computer": "laptop"},
    "Gong et al., CVPR 2012",
)  # fmt: skip


def pacs(data: DataSection) -> Sites:
    """PACS: 9,991 paintings, cartoons, photographs and sketches of 7 kinds of things; for research.

    data.clusters says among how many nodes each of the four domains is divided.
    """
    return _read(_PACS, data)


def office_caltech10(data: DataSection) -> Sites:
    """Office-Caltech: 2,533 photographs of 10 things from 4 domains; no licence stated.

    data.clusters says among how many nodes each of the four domains is divided.
    """
    return _read(_OFFICE, data)


def _read(kind: _Kind, data: DataSection) -> Sites:
    places = [Path(data.root) / name for name in ((data.path,) if data.path else kind.places)]
    place = next((place for place in places if place.exists()), None)
    if place is None:
        raise DataError(
            f"{kind.title} is not in {data.root}: put its folders ({kind.origin}) there, so that"
            f" {places[0] / kind.domains[0] / kind.classes[0]} exists, or a zip file of them, such as"
            f" {kind.places[-1]}, or change data.root or data.path"
        )
    with _listed(place, data.root) as files:
        return _sites(kind, data, place, files)


def _sites(kind: _Kind, data: DataSection, place: Path, files: Iterator[File]) -> Sites:
    """The images of all domains, domain by domain."""
    found: dict[tuple[str, str], list[File]] = {}
    for file in files:
        folders = [kind.aliases.get(name, name) for name in PurePosixPath(file.name).parts[-3:-1]]
        if len(folders) == 2 and folders[0] in kind.domains:
            found.setdefault((folders[0], folders[1]), []).append(file)
    wanted = [(domain, name) for domain in kind.domains for name in kind.classes]
    for domain, name in [*wanted, *found]:
        if (domain, name) not in found:
            raise DataError(f"{place} has no images in {domain}/{name}; complete it: {kind.title} has them")
        if (domain, name) not in wanted:
            raise DataError(f"{place} has images in {domain}/{name}, which {kind.title} does not have; remove them")
    counts = [len(found[key]) for key in wanted]
    every = [file for key in wanted for file in sorted(found[key], key=lambda file: file.name)]
    x, _, notes = decoded(every, Decoding(data.size, 3), Path(data.root) / CACHE)
    site = np.repeat(np.repeat(np.arange(len(kind.domains)), len(kind.classes)), counts)
    labels = np.repeat(np.tile(np.arange(len(kind.classes)), len(kind.domains)), counts)
    half = [0.5] * 3
    names, classes = list(kind.domains), list(kind.classes)
    return Sites(as_they_are(x), labels, site, names, classes, half, half, domains=True, notes=notes)


@contextlib.contextmanager
def _listed(place: Path, root: str) -> Iterator[Iterator[File]]:
    """The image files of a folder, or of a zip file, which is open meanwhile and never unpacked."""
    base = Path(os.path.relpath(place, root)).as_posix()
    if place.is_dir():
        yield _in_folder(place, base)
        return
    try:
        archive = zipfile.ZipFile(place)
    except (OSError, zipfile.BadZipFile) as error:
        raise DataError(f"{place} is damaged or no zip file ({error}); get it again") from None
    with archive:
        time = place.stat().st_mtime_ns
        images = (info for info in archive.infolist() if info.filename.lower().endswith(_IMAGES))
        yield (
            File(info.filename, f"{base}/{info.filename}", info.file_size, time, archive)
            for info in images
            if not PurePosixPath(info.filename).name.startswith(".")
        )


def _in_folder(place: Path, base: str) -> Iterator[File]:
    for folder, _, names in os.walk(place):
        for name in names:
            if name.lower().endswith(_IMAGES) and not name.startswith("."):
                path = Path(folder) / name
                try:
                    stat = path.stat()
                except OSError as error:  # a link to nowhere, say
                    raise DataError(f"{path} cannot be read ({error.strerror}); fetch it or remove it") from None
                yield File(str(path), f"{base}/{path.relative_to(place).as_posix()}", stat.st_size, stat.st_mtime_ns)
