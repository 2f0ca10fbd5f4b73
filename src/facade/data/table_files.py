"""Files of tables: one of comma-separated values or parquet, or a folder of them, one per site."""

from __future__ import annotations

import csv
import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from facade.core.types import Ids
from facade.data.errors import DataError

SUFFIXES = (".csv", ".tsv", ".parquet")
_ROW_NAMES = "__index_level_"
"""How pandas calls columns of row names in a .parquet file, which say nothing of a row."""
Cells = dict[str, list[object]]
"""Cells by the name of their column."""


@dataclass(frozen=True)
class TableFiles:
    """The tables of some files, one below the other."""

    cells: Cells
    paths: list[Path]
    lengths: list[int]
    """Rows of each file."""
    notes: list[str]

    @property
    def file(self) -> Ids:
        """[N] the number of the file that each row is from."""
        return np.repeat(np.arange(len(self.paths)), self.lengths)

    def place(self, row: int) -> str:
        """Where a row stands, in words; row 1 of a file is the first below its head."""
        number = int(self.file[row])
        return f"{self.paths[number]}, row {row - sum(self.lengths[:number]) + 1}"


def read_tables(place: Path) -> TableFiles:
    """The table of a file, or those of a folder, whose columns must be the same."""
    if not place.exists():
        raise DataError(f"{place} does not exist; put your table there, or change data.path or data.root")
    paths, notes = _files(place) if place.is_dir() else ([place], [])
    tables = [_read(path) for path in paths]
    names = list(tables[0])
    for path, table in zip(paths, tables, strict=True):
        for name in sorted(set(names) ^ set(table)):
            here, there = (path, paths[0]) if name in table else (paths[0], path)
            raise DataError(f"column '{name}' is in {here} but not in {there}; all files need the same columns")
    cells = {name: [cell for table in tables for cell in table[name]] for name in names}
    return TableFiles(cells, paths, [len(table[names[0]]) for table in tables], notes)


def _files(place: Path) -> tuple[list[Path], list[str]]:
    """The tables in a folder, by their names, and a sentence about other files."""
    visible = sorted(path for path in place.iterdir() if path.is_file() and not path.name.startswith("."))
    tables = [path for path in visible if path.suffix.lower() in SUFFIXES]
    strays = [path.name for path in visible if path not in tables]
    if not tables:
        raise DataError(f"{place} holds no table; put a file {', '.join(SUFFIXES)} there for every site")
    names = [path.stem for path in tables]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise DataError(f"{place} holds two tables of site '{twice[0]}'; keep one of them")
    return sorted(tables, key=lambda path: path.stem), [f"{', '.join(strays)}: no table, not used"] if strays else []


def _read(path: Path) -> Cells:
    try:
        cells = _parquet(path) if path.suffix.lower() == ".parquet" else _text(path)
    except (OSError, ValueError, csv.Error) as error:  # also of text that is not UTF-8, and of a damaged parquet file
        raise DataError(f"{path} cannot be read as a table ({error}); write it again") from None
    if not cells or not next(iter(cells.values())):
        raise DataError(f"{path} holds no rows; expected a line with the names of the columns, and rows below it")
    return cells


def _text(path: Path) -> Cells:
    """A file whose first line names the columns, separated by comma, semicolon or tab."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        head = file.readline()
        file.seek(0)
        lines = [line for line in csv.reader(file, delimiter=max(",;\t", key=head.count), strict=True) if line]
    if not lines:
        return {}
    names = [name.strip() for name in lines[0]]
    for number, name in enumerate(names):
        if not name or name in names[:number]:
            named = f"is named '{name}' like another" if name else "has no name"
            raise DataError(f"{path}: column {number + 1} {named}; give every column a name of its own")
    for number, line in enumerate(lines[1:]):
        if len(line) != len(names):
            raise DataError(f"{path}, row {number + 1} has {len(line)} cells for {len(names)} columns; mend it")
    return {name: [line[i] for line in lines[1:]] for i, name in enumerate(names)}


def _parquet(path: Path) -> Cells:
    try:
        pyarrow: Any = importlib.import_module("pyarrow")
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise DataError(
            f"{path}: parquet needs an extra: pip install 'facade-dl[parquet]', or write the table as .csv"
        ) from None
    try:
        with parquet.ParquetFile(path) as file:  # this file alone: folders called key=value say nothing of its rows
            cells: Cells = file.read().to_pydict()
    except (OSError, pyarrow.ArrowException) as error:
        raise ValueError(str(error).splitlines()[0]) from None
    return {name: column for name, column in cells.items() if not name.startswith(_ROW_NAMES)}
