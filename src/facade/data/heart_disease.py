"""Heart disease at four hospitals: the processed files of the UCI repository."""

from __future__ import annotations

import csv
import io
import zipfile
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from facade.core.types import Ids
from facade.data.columns import encode, recognised
from facade.data.errors import DataError
from facade.data.section import DataSection
from facade.data.sites import Sites

HOSPITALS = ["cleveland", "hungarian", "switzerland", "va"]
COLUMNS = [
    "age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak", "slope", "ca", "thal",
]  # fmt: skip
_CATEGORICAL = ("cp", "restecg", "slope", "thal")
_NEVER_ZERO = ("trestbps", "chol")
"""Blood pressure and cholesterol: the files write 0 where they were not measured."""
_ARCHIVES = ("heart+disease.zip", "heart-disease.zip")


def heart_disease(data: DataSection) -> Sites:
    """Heart disease: 920 patients of 4 hospitals, 13 columns, healthy or ill; CC BY 4.0.

    Gaps are filled from a hospital's own training rows, and an input says where they are.
    """
    rows, labels, counts = [], [], []
    for hospital in HOSPITALS:
        own = _patients(*_content(data, f"processed.{hospital}.data"))
        rows += [row[:-1] for row in own]
        labels += [int(float(row[-1]) > 0) for row in own]
        counts.append(len(own))
    table = {name: [_cell(name, row[i]) for row in rows] for i, name in enumerate(COLUMNS)}
    columns = recognised(table, _CATEGORICAL)

    def inputs(training: NDArray[np.bool_], node: Ids) -> Tensor:
        return torch.from_numpy(encode(table, training, node, columns).x)

    site = np.repeat(np.arange(len(HOSPITALS)), counts)
    return Sites(inputs, np.array(labels, np.int64), site, list(HOSPITALS), ["healthy", "ill"], standardised=True)


def _content(data: DataSection, name: str) -> tuple[str, str]:
    """Where a file lies, in words, and what it holds."""
    place = Path(data.root) / (data.path or "heart-disease")
    path = place / name
    try:
        if path.is_file():
            return str(path), path.read_text()
        archives = [place] if data.path else [Path(data.root) / archive for archive in _ARCHIVES]
        for archive in (archive for archive in archives if archive.is_file()):
            with zipfile.ZipFile(archive) as opened:
                return f"{archive}: {name}", opened.read(name).decode()
    except (OSError, UnicodeDecodeError, zipfile.BadZipFile, KeyError) as error:
        raise DataError(f"{name} cannot be read from {data.root} ({error}); get it again") from None
    raise DataError(
        f"{path} does not exist: get heart+disease.zip from https://archive.ics.uci.edu/dataset/45/heart+disease and"
        f" put it into {data.root}, or its files processed.*.data into {place}"
    )


def _patients(where: str, content: str) -> list[list[str]]:
    """The rows of a file, the last column a number from 0 to 4; a header is skipped."""
    rows = [row for row in csv.reader(io.StringIO(content)) if row]
    if rows and rows[0][0].strip() == COLUMNS[0]:
        rows = rows[1:]
    for number, row in enumerate(rows, 1):
        if len(row) != len(COLUMNS) + 1:
            raise DataError(f"{where}: patient {number} has {len(row)} values; expected 13 and the diagnosis")
        if row[-1].strip() not in ("0", "1", "2", "3", "4"):
            raise DataError(f"{where}: patient {number} has the diagnosis '{row[-1]}'; expected 0 to 4")
    if not rows:
        raise DataError(f"{where} has no patients; get it again")
    return rows


def _cell(column: str, text: str) -> str | None:
    unknown = column in _NEVER_ZERO and text.strip() in ("0", "0.0")
    return None if unknown else text
