"""Image files decoded once: one memory-mapped array per folder and settings.

Decoding ten thousand files takes many seconds, opening one array none. The array lies below the
data root, named by a SHA-256 of what it was made from (path, size and time of every file, and how
they were decoded), so a changed folder is decoded again and never mistaken for the old one.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import logging
import os
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from facade.data.errors import DataError
from facade.data.samples import TypeRange
from facade.data.scales import type_range
from facade.errors import StorageError
from facade.files import store
from facade.learning.machine import cores

CACHE = ".facade-cache"
_VERSION = 3
"""To be raised when the same settings give other pixels, or other notes."""
_GRAY = ("1", "L")
_SIXTEEN_BITS = ("I;16", "I;16B", "I;16L", "I;16N")
_DEEP = ("I", "F", *_SIXTEEN_BITS)
"""Pillow's modes of more than 8 bits, all gray; it would clip rather than scale them."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Decoding:
    """How image files become arrays."""

    size: int
    """Pixels: the shorter side is scaled to it, then the centre is cut out."""
    channels: Literal["auto", 1, 3] = "auto"
    """Gray or RGB; "auto": RGB unless all images are gray."""


@dataclass(frozen=True)
class File:
    """An image file and what tells whether it changed."""

    path: str
    name: str
    """Its path relative to the data root."""
    size: int
    time: int
    """Of the last change, in nanoseconds."""
    archive: zipfile.ZipFile | None = None
    """The opened archive in which `path` lies; None: it lies in a folder."""


class Decoded(NamedTuple):
    """Images as they are stored."""

    x: Tensor
    """[N, C, size, size], uint8 or float32."""
    bounds: TypeRange | None
    """The range of the integers that floats were made of, where they were made of 16 bits."""
    notes: list[str]
    """Sentences about conversions."""


def decoded(files: list[File], how: Decoding, cache: Path) -> Decoded:
    """Images in the order of `files`. From the cache if it is there, otherwise decoded and put there."""
    key = _key(files, how)
    pixels, notes = cache / f"{key}.npy", cache / f"{key}.json"
    if pixels.exists() and notes.exists():
        with contextlib.suppress(OSError, ValueError):  # a damaged cache is made again
            return _stored(_opened(pixels), json.loads(notes.read_text()))
    log.info("decoding %d images", len(files))
    dtype, channels, conversions = _survey(files, how)
    shape = (len(files), channels, how.size, how.size)
    try:
        with store.replacing(pixels) as part:
            mapped = np.lib.format.open_memmap(part, "w+", dtype, shape)
            if hasattr(os, "posix_fallocate"):  # on a full disk that is an error, and writing to the map a crash
                with part.open("r+b") as whole:
                    os.posix_fallocate(whole.fileno(), 0, part.stat().st_size)
            _fill(mapped, files)
            mapped.flush()
            store.replace(notes, json.dumps(conversions).encode())
    except StorageError as error:  # a read-only place: every load decodes again
        reason = getattr(error.__cause__, "strerror", None) or error
        warnings.warn(
            f"decoded images are not kept: {cache} cannot be written to ({reason}); every load decodes them again,"
            " unless data.root is a directory of your own with links to the data",
            stacklevel=2,
        )
        array: NDArray[Any] = np.empty(shape, dtype)
        _fill(array, files)
        return _stored(array, conversions)
    return _stored(_opened(pixels), conversions)


def _opened(pixels: Path) -> NDArray[Any]:
    # Copy on write: unchanged pages stay on disk, and changing the array never changes the file.
    return np.load(pixels, mmap_mode="c", allow_pickle=False)  # type: ignore[no-any-return]


def _stored(pixels: NDArray[Any], notes: list[str]) -> Decoded:
    sixteen = pixels.dtype == np.uint16
    return Decoded(
        torch.from_numpy(pixels.astype(np.float32) if sixteen else pixels),
        type_range(pixels.dtype) if sixteen else None,
        notes,
    )


def _key(files: list[File], how: Decoding) -> str:
    digest = hashlib.sha256(json.dumps({"version": _VERSION, **asdict(how)}, sort_keys=True).encode())
    for name, size, time in sorted((f.name, f.size, f.time) for f in files):
        digest.update(f"\n{name}\0{size}\0{time}".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _survey(files: list[File], how: Decoding) -> tuple[type[np.generic], int, list[str]]:
    """The type of values, the number of channels, and sentences about images that are not alike; from the headers."""
    with ThreadPoolExecutor(cores()) as pool:
        kinds = list(pool.map(_kind, files))
    modes = [kind.mode for kind in kinds]
    if any(mode in _DEEP for mode in modes):
        return _deep_type(files, modes, how), 1, []
    gray = sum(mode in (*_GRAY, "LA") for mode in modes)
    transparent, halved = sum(kind.transparent for kind in kinds), sum(kind.halved for kind in kinds)
    channels = how.channels if how.channels != "auto" else 1 if gray == len(files) else 3
    notes = []
    if transparent:
        notes.append(f"{transparent} of {len(files)} images are transparent: they were laid on white")
    if halved:
        notes.append(
            f"{halved} of {len(files)} images have 16 bits per colour, of which 8 were read; arrays in an .npz file"
            " keep all"
        )
    if channels == 3 and gray:
        notes.append(f"{gray} of {len(files)} images are gray: they were turned into RGB")
    if channels == 1 and gray < len(files):
        notes.append(f"{len(files) - gray} of {len(files)} images are in colour: they were turned into gray")
    return np.uint8, channels, notes


def _deep_type(files: list[File], modes: list[str], how: Decoding) -> type[np.generic]:
    """The type of images of more than 8 bits, which must all be such, and are gray."""
    sixteen, deep = ([mode in some for mode in modes] for some in (_SIXTEEN_BITS, _DEEP))
    for file, mode, alike in zip(files, modes, sixteen if sixteen[0] else deep, strict=True):
        if not alike or not deep[0]:
            raise DataError(
                f"{file.path} is not like the other images (mode {mode}): some have more than 8 bits per value, others"
                " not, or fewer; convert them to one kind"
            )
    if how.channels == 3:
        raise DataError(f"{files[0].path} has more than 8 bits per value and is gray; set data.channels to 1 or 'auto'")
    return np.uint16 if all(sixteen) else np.float32


class _Kind(NamedTuple):
    """What an image's header says."""

    mode: str
    transparent: bool
    """Whether it has transparent parts."""
    halved: bool
    """Whether its colours have 16 bits: Pillow reads the higher 8 of them."""


def _kind(file: File) -> _Kind:
    with _open(file) as image:
        mode = "I;16" if image.format == "PNG" and image.mode == "I" else image.mode  # as Pillow 10 reads 16 bits
        transparent = image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info
        halved = mode not in _DEEP and any(";16" in str(tile[3]) for tile in getattr(image, "tile", ()))
        return _Kind(mode, transparent, halved)


def is_image(path: str) -> bool:
    """Whether a file is meant to be an image: by its name, or, where that says nothing, by how it begins."""
    if os.path.splitext(path)[1].lower() in Image.registered_extensions():
        return True
    try:
        with Image.open(path):
            return True
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return False


@contextlib.contextmanager
def _open(file: File) -> Iterator[Image.Image]:
    try:
        source = file.path if file.archive is None else io.BytesIO(file.archive.read(file.path))
        with Image.open(source) as image:
            yield image
    except UnidentifiedImageError:
        raise DataError(f"{file.path} is not an image; a class folder may hold image files only: remove it") from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{file.path} cannot be decoded ({error}); replace or remove it") from None


def _fill(array: NDArray[Any], files: list[File]) -> None:
    """Decode all files into an array [N, C, size, size]."""
    channels, size = array.shape[1], array.shape[2]

    def one(i: int) -> None:
        with _open(files[i]) as image:
            array[i] = _pixels(image, channels, size) if array.dtype == np.uint8 else _deep_pixels(image, size)

    with ThreadPoolExecutor(cores()) as pool:  # Pillow decodes without holding the interpreter
        try:
            for _ in pool.map(one, range(len(files))):
                pass
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _pixels(image: Image.Image, channels: int, size: int) -> NDArray[Any]:
    """[C, size, size] of an opened image, turned as its camera says it was held."""
    image = ImageOps.exif_transpose(image)
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        clear = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", clear.size, "white"), clear)
    pixels = _cut(image.convert("L" if channels == 1 else "RGB"), size)
    return pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)


def _deep_pixels(image: Image.Image, size: int) -> NDArray[Any]:
    """[1, size, size] of an opened image with more than 8 bits; 16 bits are whole numbers again."""
    values = np.asarray(ImageOps.exif_transpose(image))
    pixels = _cut(Image.fromarray(values.astype(np.float32)), size)
    return (pixels.round() if values.dtype.kind in "ui" else pixels)[None]


def _cut(image: Image.Image, size: int) -> NDArray[Any]:
    """The centre of an image whose shorter side is scaled to `size`."""
    short = min(image.size)
    width, height = (max(size, round(side * size / short)) for side in image.size)
    if (width, height) != image.size:
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = (width - size) // 2, (height - size) // 2
    return np.asarray(image.crop((left, top, left + size, top + size)))
