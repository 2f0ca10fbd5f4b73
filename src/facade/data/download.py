"""Official files, fetched where the network allows: resumable, checked, and never half there."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from facade.data.errors import DataError
from facade.errors import unknown
from facade.files import store
from facade.files.locks import lock

_BLOCK = 1 << 20
_TIMEOUT = 30.0
"""Seconds without a byte after which a server counts as silent."""

Report = Callable[[int, int | None], None]
"""Told the bytes that are there and, if known, the bytes there will be."""


@dataclass(frozen=True)
class Remote:
    """An official file."""

    url: str
    file: str
    """Its name below the data root."""
    md5: str
    """As published with the data."""
    folder: str | None = None
    """The folder that unpacking it makes; None: it is read as it is."""


def _medmnist(name: str, md5: str) -> Remote:
    return Remote(f"https://zenodo.org/records/10519652/files/{name}.npz?download=1", f"{name}.npz", md5)


REMOTES: dict[str, Remote] = {
    "cifar10": Remote(
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        "cifar-10-binary.tar.gz",
        "c32a1d4ab5d03f1284b67883e8d87530",
    ),
    "imagenette": Remote(
        "https://s3.amazonaws.com/fast-ai-imageclas/imagenette2-160.tgz",
        "imagenette2-160.tgz",
        "e793b78cc4c9e9a4ccc0c1155377a412",
        folder="imagenette2-160",
    ),
    "bloodmnist": _medmnist("bloodmnist", "7053d0359d879ad8a5505303e11de1dc"),
    "breastmnist": _medmnist("breastmnist", "750601b1f35ba3300ea97c75c52ff8f6"),
    "dermamnist": _medmnist("dermamnist", "0744692d530f8e62ec473284d019b0c7"),
    "octmnist": _medmnist("octmnist", "c68d92d5b585d8d81f7112f81e2d0842"),
    "pathmnist": _medmnist("pathmnist", "a8b06965200029087d5bd730944a56c1"),
    "pneumoniamnist": _medmnist("pneumoniamnist", "28209eda62fecd6e6a2d98b1501bb15f"),
    "retinamnist": _medmnist("retinamnist", "bd4c0672f1bba3e3a89f0e4e876791e4"),
    "tissuemnist": _medmnist("tissuemnist", "ebe78ee8b05294063de985d821c1c34b"),
}


@dataclass(frozen=True)
class ByHand:
    """A data set that a person has to fetch: no address that lasts offers it with a published checksum."""

    origin: str
    places: Sequence[str]
    """Files and folders below the data root from which it is read, the usual one first."""
    md5: Mapping[str, str] = field(default_factory=dict)
    """Of files as their authors made them, by their place below the data root."""


BY_HAND: dict[str, ByHand] = {
    "landmine": ByHand(
        "Xue et al., JMLR 2007",
        ["LandmineData.mat"],
        {"LandmineData.mat": "8e9e5085f3f98600141b26c0e1376ee9"},
    ),
    "heart-disease": ByHand(
        "https://archive.ics.uci.edu/dataset/45/heart+disease", ["heart+disease.zip", "heart-disease"]
    ),
    "pacs": ByHand("Li et al., ICCV 2017", ["PACS", "PACS.zip", "pacs64.zip"]),
    "office-caltech10": ByHand(
        "Gong et al., CVPR 2012", ["office-caltech10", "office_caltech_10.zip", "office_caltech10_64.zip"]
    ),
    "office-caltech10-surf": ByHand(
        "Gong et al., CVPR 2012",
        ["office-caltech10-surf"],
        {
            "office-caltech10-surf/amazon.mat": "d362bbbe78ddb296a666ee141ca68622",
            "office-caltech10-surf/caltech10.mat": "03c3afa06c8a62fb325aa7b5ed96e187",
            "office-caltech10-surf/dslr.mat": "8ec02aff59c1874338cc6618b4d23bd5",
            "office-caltech10-surf/webcam.mat": "6c2d9234165768e8adcd3bdfe068a871",
        },
    ),
}


def get(name: str, root: Path, report: Report = lambda done, total: None) -> Path:
    """Fetch a data set into `root` unless it is there; the file or folder it is read from. An
    interrupted transfer goes on where it stopped."""
    if name in BY_HAND:
        return _put_by_hand(name, BY_HAND[name], root)
    if name not in REMOTES:
        raise unknown("data set to download", name, {**REMOTES, **BY_HAND})
    remote = REMOTES[name]
    target = root / remote.file
    if remote.folder is not None and (root / remote.folder).is_dir():
        return root / remote.folder
    try:
        if target.exists():
            _check(target, remote.md5, "remove it and try again")
        else:
            _fetch(remote, target, report)
        if remote.folder is None:
            return target
        return unpack(target, remote.folder)
    except OSError as error:  # the disk's troubles; the network's are dealt with where they arise
        raise DataError(f"{root} cannot be written: {error.strerror or error}; choose another `root`") from None


def _put_by_hand(name: str, known: ByHand, root: Path) -> Path:
    """Where a data set lies that somebody put there; its files are checked as far as their checksums are known."""
    place = next((root / place for place in known.places if (root / place).exists()), None)
    if place is None:
        raise DataError(
            f"{name} has no address to download it from: get it from its authors ({known.origin}) and put it at"
            f" {root / known.places[0]}; docs/data.md says what lies there"
        )
    for file, md5 in known.md5.items():
        if (root / file).exists():
            _check(root / file, md5, "get it again")
    return place


def _fetch(remote: Remote, target: Path, report: Report) -> None:
    """Download to a .part file, check it, and only then give it its name. Its name is always the same, so that the
    next attempt finds it; so it is locked until it has its final one."""
    part = target.with_name(target.name + ".part")
    with contextlib.ExitStack() as opened:
        try:
            _continue(remote.url, part, report, opened)
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
            reason = getattr(error, "reason", None) or error
            raise DataError(
                f"{remote.url} could not be downloaded ({reason}); try again to go on from where it stopped,"
                f" or fetch it elsewhere and put it at {target}"
            ) from None
        try:
            _check(part, remote.md5, "the copy was removed: try again")
        except DataError:
            part.unlink()
            raise
        store.put_in_place(part, target)


def _continue(url: str, part: Path, report: Report, opened: contextlib.ExitStack) -> None:
    """Ask for the bytes that `part` lacks and append them; it stays locked as long as `opened` is."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        answer = urllib.request.urlopen(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if have and error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            _open_alone(part, have, opened)
            return  # nothing is lacking; the checksum decides
        raise
    with answer:
        file = _open_alone(part, have, opened)
        if answer.status != http.client.PARTIAL_CONTENT:
            have = file.truncate(0)  # a server that does not know ranges sends everything again
        length = answer.headers.get("Content-Length")
        total = have + int(length) if length is not None else None
        while block := answer.read(_BLOCK):
            file.write(block)
            have += len(block)
            report(have, total)
        file.flush()
    if total is not None and have < total:
        raise http.client.HTTPException(f"the connection ended after {have:,} of {total:,} bytes")


def _open_alone(part: Path, have: int, opened: contextlib.ExitStack) -> BinaryIO:
    """The file, to be appended to, if it still has `have` bytes and no other process is at it."""
    part.parent.mkdir(parents=True, exist_ok=True)
    file = opened.enter_context(part.open("ab"))
    try:
        lock(file.fileno())
        alone = file.tell() == have and part.exists() and os.path.samefile(part, file.fileno())
    except BlockingIOError:
        alone = False
    if not alone:
        raise DataError(f"another process is downloading {part}; wait until it is done, and try again")
    return file


def _check(path: Path, md5: str, remedy: str) -> None:
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    if digest.hexdigest() != md5:
        raise DataError(
            f"{path} has MD5 {digest.hexdigest()} where {md5} was published: damaged or another file; {remedy}"
        )


def unpack(archive: Path, folder: str) -> Path:
    """Unpack a .tgz or .zip whose content is one folder, beside the archive. The folder appears when
    it is complete; links and paths that lead elsewhere are refused."""
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix=f".{folder}-") as temporary:
        try:
            (_unzip if archive.suffix == ".zip" else _untar)(archive, Path(temporary))
        except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error) as error:
            raise DataError(f"{archive} is damaged or cut short ({error}); remove it and get it again") from None
        unpacked = Path(temporary) / folder
        if not unpacked.is_dir():
            raise DataError(f"{archive} holds no folder {folder}; it is not the official archive: get it again")
        os.replace(unpacked, archive.parent / folder)
    return archive.parent / folder


def _untar(archive: Path, into: Path) -> None:
    with tarfile.open(archive) as opened:
        members = opened.getmembers()
        for member in members:
            _refuse(archive, member.name, plain=member.isfile() or member.isdir())
        if hasattr(tarfile, "data_filter"):
            opened.extractall(into, members, filter="data")
        else:  # Python before 3.11.4
            opened.extractall(into, members)


def _unzip(archive: Path, into: Path) -> None:
    with zipfile.ZipFile(archive) as opened:
        for info in opened.infolist():
            kind = info.external_attr >> 28  # upper bits of a Unix mode: 8 = file, 4 = folder, 0 = unknown
            _refuse(archive, info.filename, plain=kind in (0, 4, 8))
            if not info.is_dir():
                goal = into / info.filename
                goal.parent.mkdir(parents=True, exist_ok=True)
                with opened.open(info) as source, goal.open("wb") as copy:
                    shutil.copyfileobj(source, copy)


def _refuse(archive: Path, name: str, plain: bool) -> None:
    """Raise for a member that is no plain file or folder inside the archive's own tree."""
    path = PurePosixPath(name.replace("\\", "/"))
    if not plain or path.is_absolute() or ".." in path.parts or ":" in "".join(path.parts[:1]):
        raise DataError(
            f"{archive} has a member '{name}' that is a link or leads out of the archive: nothing was unpacked;"
            " do not use this file"
        )
