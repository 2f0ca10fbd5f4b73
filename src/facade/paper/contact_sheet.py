"""A contact sheet: all figures of a directory, small, in one picture."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from facade.files import store

_ACROSS, _WIDTH, _HEIGHT, _GAP = 4, 420, 300, 10


def write(pictures: Sequence[Path], path: Path) -> Path:
    """Write the pictures as one PNG of few colours."""
    rows = -(-len(pictures) // _ACROSS)
    size = (_ACROSS * (_WIDTH + _GAP) + _GAP, rows * (_HEIGHT + _GAP) + _GAP)
    sheet = Image.new("RGB", size, "white")
    for number, picture in enumerate(pictures):
        with Image.open(picture) as opened:
            small = opened.convert("RGB")
            small.thumbnail((_WIDTH, _HEIGHT), Image.Resampling.LANCZOS)
        row, column = divmod(number, _ACROSS)
        sheet.paste(small, (_GAP + column * (_WIDTH + _GAP), _GAP + row * (_HEIGHT + _GAP)))
    file = io.BytesIO()
    sheet.quantize(256, dither=Image.Dither.NONE).save(file, "PNG", optimize=True)
    store.replace(path, file.getvalue())
    return path
