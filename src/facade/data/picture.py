"""What the clusters see: a picture with a row of sample images per cluster."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from facade.core.types import Ids
from facade.data.errors import DataError
from facade.data.federation import Federation
from facade.errors import StorageError
from facade.files import store

_COLUMNS = 10
_SIDE = 64
"""Smaller images are enlarged to about this many pixels, each pixel a square."""
_GAP, _TEXT = 4, 14


def draw(federation: Federation, out: Path) -> None:
    """Write a PNG: per cluster a labelled row with one training image of each of the first classes
    (empty where the cluster has none)."""
    if len(federation.shape) == 1:
        raise DataError(f"rows of {federation.shape[0]} values cannot be drawn, only images can; do without `out`")
    if len(federation.shape) != 3 or federation.shape[0] not in (1, 3):
        raise DataError(
            f"samples of shape {list(federation.shape)} cannot be drawn, only images of 1 or 3 channels can; do without"
            " `out`"
        )
    try:
        with store.replacing(out) as part:
            _picture(federation).save(part, "PNG")
    except StorageError as error:
        raise DataError(f"{error}; give another file") from None


def _picture(federation: Federation) -> Image.Image:
    clusters = np.zeros(federation.n, np.int64) if federation.cluster is None else federation.cluster
    columns = min(_COLUMNS, len(federation.classes))
    times = max(1, -(-_SIDE // max(federation.shape[1:])))
    height, width = (side * times for side in federation.shape[1:])
    count = int(clusters.max()) + 1
    line = _TEXT + height + 2 * _GAP
    picture = Image.new("RGB", (columns * (width + _GAP) + _GAP, count * line + _TEXT + _GAP), "white")
    pen, font = ImageDraw.Draw(picture), ImageFont.load_default()
    for column in range(columns):
        name = federation.classes[column][: width // 6]  # the default font is about 6 pixels wide
        pen.text((_GAP + column * (width + _GAP), 1), name, "black", font)
    for c in range(count):
        nodes = np.nonzero(clusters == c)[0]
        top = _TEXT + _GAP + c * line
        pen.text((_GAP, top), f"cluster {c}: {len(nodes)} nodes", "black", font)
        for column, x in _samples(federation, nodes, columns).items():
            enlarged = _image(x).resize((width, height), Image.Resampling.NEAREST)
            picture.paste(enlarged, (_GAP + column * (width + _GAP), top + _TEXT))
    return picture


def _samples(federation: Federation, nodes: Ids, columns: int) -> dict[int, Tensor]:
    """One image of each class that these nodes hold, by class."""
    samples = federation.training.samples
    rows = np.concatenate([federation.training.rows[node] for node in nodes])
    labels = samples.y.numpy()[rows]
    by_class = ((label, np.nonzero(labels == label)[0]) for label in range(columns))
    return {label: samples.x[int(rows[places[0]])] for label, places in by_class if len(places)}


def _image(x: Tensor) -> Image.Image:
    if x.dtype != torch.uint8:  # each image by its own least and largest value
        span = (x.max() - x.min()).clamp_min(torch.finfo(x.dtype).tiny)
        x = (255 * (x - x.min()) / span).round().to(torch.uint8)
    pixels = x.numpy().transpose(1, 2, 0)
    return Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else np.ascontiguousarray(pixels)).convert("RGB")
