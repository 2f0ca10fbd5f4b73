"""Sources made of tables: a label, columns of numbers and categories, perhaps a site for every row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from facade.core.types import Ids
from facade.data.columns import Column, cell_texts, encode, in_order, recognised
from facade.data.errors import DataError
from facade.data.partition import held_out_groups
from facade.data.samples import Dataset, Labelled
from facade.data.section import DataSection
from facade.data.table_files import Cells, TableFiles, read_tables
from facade.errors import unknown

_SPLITS = {
    "train": "train", "training": "train", "test": "test", "testing": "test",
    "val": "validation", "valid": "validation", "validation": "validation",
}  # fmt: skip
"""What the cells of data.split may say, in small letters, and what it means."""


def csv(data: DataSection) -> Dataset:
    """Your own tables: data.path is a .csv file with a column data.label, or a folder with a file per site."""
    if not data.path or not data.label:
        raise DataError(
            f"source '{data.source}' needs data.path, a file below data.root or a folder with one per site, and"
            " data.label, the column that holds the classes"
        )
    files = read_tables(Path(data.root) / data.path)
    _check_names(files.cells, data)
    rows = _Rows.of(files, data)
    split = _split(files, rows, data)
    inputs = {name: column for name, column in files.cells.items() if name not in _used_otherwise(data)}
    columns = _columns(inputs, data)
    encoded = encode(inputs, split == "train", rows.site, columns, standard=data.scale == "auto")
    labelled = Labelled(torch.from_numpy(encoded.x), torch.from_numpy(rows.label))
    test = split == "test"
    kept_back = split[~test] == "validation"
    return Dataset(
        labelled[torch.from_numpy(~test)],
        labelled[torch.from_numpy(test)],
        rows.classes,
        node=rows.site[~test] if rows.names else None,
        test_node=rows.site[test] if rows.names else None,
        tests_held_out=not data.split,
        notes=[*files.notes, *_notes(files, rows, test, data)],
        sites=rows.names or None,
        columns=encoded.columns,
        standardised=data.scale == "auto",
        group=rows.group[~test] if data.group else None,
        kept_back=kept_back if kept_back.any() else None,
    )


def parquet(data: DataSection) -> Dataset:
    """The same as csv, of .parquet files (needs pyarrow)."""
    return csv(data)


def _used_otherwise(data: DataSection) -> set[str]:
    """Columns that say something about rows, and are no inputs."""
    return {name for name in (data.label, data.site, data.split, data.group) if name}


def _check_names(cells: Cells, data: DataSection) -> None:
    """Refuse settings that name columns which are not there."""
    named = {"label": [data.label], "site": [data.site], "split": [data.split], "group": [data.group]}
    named |= {"categorical": data.categorical, "ignore": data.ignore}
    for key, names in named.items():
        for name in names:
            if name and name not in cells:
                raise DataError(f"data.{key}: {unknown('column', name, list(cells))}")


def _columns(inputs: Cells, data: DataSection) -> list[Column]:
    """The columns that become inputs."""
    if not data.columns:
        kept = {name: cells for name, cells in inputs.items() if name not in data.ignore}
        return recognised(kept, [name for name in data.categorical if name in kept])
    columns = []
    for column in data.columns:
        name = column if isinstance(column, str) else column.name
        if name not in inputs:
            raise DataError(f"data.columns: {unknown('column', name, list(inputs))}")
        if isinstance(column, str):
            (column,) = recognised({name: inputs[name]}, [name] if name in data.categorical else [])
        columns.append(column)
    return columns


@dataclass(frozen=True)
class _Rows:
    """What is said of the rows of a table, beside their inputs."""

    label: Ids
    """[N] class numbers."""
    classes: list[str]
    site: Ids
    """[N] numbers in the order of names; 0 where sites do not count."""
    names: list[str]
    """Of the sites; none where they do not count."""
    group: Ids
    """[N] numbers, other ones at every site."""

    @classmethod
    def of(cls, files: TableFiles, data: DataSection) -> _Rows:
        labels = _texts(files, data.label, "label")
        classes = in_order(labels)
        number = {name: i for i, name in enumerate(classes)}
        names, site = _sites(files, data)
        by_site = data.partition == "natural" and bool(names)
        site = site if by_site else np.zeros(len(labels), np.int64)
        return cls(
            np.array([number[label] for label in labels], np.int64),
            classes,
            site,
            names if by_site else [],
            _groups(files, site, data),
        )


def _texts(files: TableFiles, name: str, what: str) -> list[str]:
    """The cells of a column in which every row must say something."""
    texts = cell_texts(name, files.cells[name])
    if None in texts:
        raise DataError(f"{files.place(texts.index(None))} has no {what} (column '{name}'); add it, or remove the row")
    return [text for text in texts if text is not None]


def _sites(files: TableFiles, data: DataSection) -> tuple[list[str], Ids]:
    """The names of the sites, in the order of real sites' ids, and the number of each row's."""
    if len(files.paths) > 1:
        if data.site:
            raise DataError(f"data.site = '{data.site}', but every file is a site's; leave it out, or join the files")
        return [path.stem for path in files.paths], files.file
    if not data.site:
        return [], np.zeros(0, np.int64)
    texts = _texts(files, data.site, "site")
    names, number = np.unique(texts, return_inverse=True)
    return [str(name) for name in names], number.astype(np.int64)


def _groups(files: TableFiles, site: Ids, data: DataSection) -> Ids:
    """[N] the number of each row's group; a row without one is alone."""
    if not data.group:
        return np.arange(len(site))
    number: dict[tuple[int, str], int] = {}
    texts = cell_texts(data.group, files.cells[data.group])
    keys = [(int(own), f"row {i}" if texts[i] is None else f"group {texts[i]}") for i, own in enumerate(site)]
    return np.array([number.setdefault(key, len(number)) for key in keys], np.int64)  # as they come at their site


def _split(files: TableFiles, rows: _Rows, data: DataSection) -> NDArray[np.str_]:
    """[N] train, test or validation, with rows of every site in the first two."""
    split = _written_split(files, rows, data) if data.split else _held_out(rows, data.test_fraction)
    for number in np.unique(rows.site):
        for part in ("train", "test"):
            if not (split[rows.site == number] == part).any():
                whose = f"site '{rows.names[number]}'" if rows.names else str(Path(data.root) / data.path)
                raise DataError(f"{whose} has no row to {part} with; give it more rows or groups, or leave it out")
    return split


def _written_split(files: TableFiles, rows: _Rows, data: DataSection) -> NDArray[np.str_]:
    texts = _texts(files, data.split, "split")
    for row, text in enumerate(texts):
        if text.casefold() not in _SPLITS:
            raise DataError(
                f"{files.place(row)} says '{text}' in column '{data.split}'; expected train, test or validation"
            )
    split = np.array([_SPLITS[text.casefold()] for text in texts])
    _, first, group = np.unique(rows.group, return_index=True, return_inverse=True)
    torn = np.nonzero(split != split[first][group])[0]
    if len(torn):
        parts = f"{split[first][group][torn[0]]} and {split[torn[0]]}"
        raise DataError(
            f"group '{files.cells[data.group][torn[0]]}' has rows in {parts}; rows of one group must be in one part"
        )
    return split


def _held_out(rows: _Rows, fraction: float) -> NDArray[np.str_]:
    """A part of every class of every site. It depends on the rows of the site alone, so that a real site holds out the
    same as a simulator of all."""
    split = np.full(len(rows.label), "train")
    for number in np.unique(rows.site):
        own = np.nonzero(rows.site == number)[0]
        out = held_out_groups(rows.label[own], rows.group[own], fraction, 0, "test")
        if not out.any():
            out = held_out_groups(np.zeros(len(own), np.int64), rows.group[own], fraction, 0, "test", least=1)
        split[own[out]] = "test"
    return split


def _notes(files: TableFiles, rows: _Rows, test: NDArray[np.bool_], data: DataSection) -> Sequence[str]:
    notes = []
    if data.partition != "natural" and (data.site or len(files.paths) > 1):
        notes.append(f"whose a row is does not count: data.partition = '{data.partition}' divides rows anew")
    for label in np.setdiff1d(rows.label[test], rows.label[~test]):
        notes.append(f"class '{rows.classes[label]}' is tested but never trained on")
    return notes
