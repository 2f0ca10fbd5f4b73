"""Columns of a table as inputs: gaps are filled, categories become one input each, numbers are standardised.

Every number that this takes comes from the training rows of one site, so that a real site, which has no rows but its
own, computes what a simulator computes that has those of all. What sites have to agree on are words alone: the
names of columns, their categories, and which of them have gaps (`Column`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from facade.core.section import Section
from facade.core.types import Ids
from facade.data.errors import DataError

Table = Mapping[str, Sequence[object]]
"""Cells by the name of their column, all columns of one length. A cell is a text, a number or None."""

MISSING = frozenset({"", "?", "na", "n/a", "nan", "null"})
"""Texts that stand for no value, in small letters."""
_PLAIN = (str, bool, int, float, Decimal, np.number, np.bool_)
"""What a cell may be."""
MOST_CATEGORIES = 100
"""A column of more different texts is taken for free text or an identifier, unless it is said to be categorical."""


class Column(Section):
    """One column of a table, and how it becomes inputs."""

    name: str
    categories: list[str] = Field(default_factory=list)
    """What its texts may be, an input each; none: it holds numbers."""
    missing: bool = False
    """Whether one more input says that there was no value."""

    @property
    def inputs(self) -> list[str]:
        """The names of the inputs that it becomes, in their order."""
        values = [f"{self.name} = {category}" for category in self.categories] or [self.name]
        return [*values, f"{self.name} is missing"] if self.missing else values


class Encoded(NamedTuple):
    """A table as inputs."""

    x: NDArray[np.float32]
    """[N, values]"""
    inputs: list[str]
    """[values] names."""
    columns: list[Column]


def recognised(table: Table, categorical: Collection[str] = ()) -> list[Column]:
    """The columns of a table by what they hold: numbers, if every value is one and `categorical` does not name the
    column, else the categories that occur."""
    for name in categorical:
        if name not in table:
            raise DataError(f"there is no column '{name}' to be categorical; the columns are {', '.join(table)}")
    return [_recognised(name, cells, name in categorical) for name, cells in table.items()]


def _recognised(name: str, cells: Sequence[object], categorical: bool) -> Column:
    texts = cell_texts(name, cells)
    known = {text for text in texts if text is not None}
    missing = None in texts
    if not categorical and all(_number(text) is not None for text in known):
        return Column(name=name, missing=missing)
    if not categorical and len(known) > MOST_CATEGORIES:
        raise DataError(
            f"column '{name}' has {len(known)} different texts, such as '{min(known)}', which are too many to be"
            " categories; leave it out (data.ignore), or name it in data.categorical if they are"
        )
    return Column(name=name, categories=in_order(known), missing=missing)


def in_order(texts: Collection[str]) -> list[str]:
    """Texts, each once: numbers by their value, then the others by the alphabet."""

    def place(text: str) -> tuple[float, str]:
        number = _number(text)
        return math.inf if number is None else number, text

    return sorted(set(texts), key=place)


def encode(
    table: Table, training: NDArray[np.bool_], site: Ids, columns: Sequence[Column] | None = None, standard: bool = True
) -> Encoded:
    """A table as inputs. `training` [N] says which rows are trained on, `site` [N] whose a row is; `columns` are those
    that are used (None: all, as `recognised`). A gap becomes the median, or the most frequent category, of the
    training rows of its site; where those have no value at all, zeros. With `standard`, numbers have mean 0 and
    standard deviation 1 in the training rows of every site."""
    columns = recognised(table) if columns is None else list(columns)
    if not columns:
        raise DataError("the table has no column to learn from; keep at least one beside the label")
    parts = []
    for column in columns:
        if column.name not in table:
            raise DataError(f"there is no column '{column.name}'; the columns are {', '.join(table)}")
        texts = cell_texts(column.name, table[column.name])
        gaps = np.array([text is None for text in texts], np.bool_)
        make = _one_hot if column.categories else _numbers
        values = make(column, texts)
        for own in (site == number for number in np.unique(site)):
            values[own] = _filled(values[own], gaps[own], training[own], column, standard)
        parts += [values, gaps[:, None].astype(np.float64)] if column.missing else [values]
    x = np.concatenate(parts, axis=1).astype(np.float32)
    return Encoded(x, [name for column in columns for name in column.inputs], columns)


def cell_texts(name: str, cells: Sequence[object]) -> list[str | None]:
    """What the cells of a column say; None where one has no value. Dates and lists, which a .parquet file may hold, are
    refused: no rule makes numbers of them that would suit every table."""
    for cell in cells:
        if cell is not None and not isinstance(cell, _PLAIN):
            raise DataError(
                f"column '{name}' holds values of type {type(cell).__name__}, such as {cell}; write them as numbers or"
                " texts, or leave the column out (data.ignore)"
            )
    return [_text(cell) for cell in cells]


def _text(cell: object) -> str | None:
    """What a cell says; None where it has no value. Whole numbers are written alike, 3.0 as 3."""
    if cell is None or (isinstance(cell, float | np.floating) and math.isnan(cell)):
        return None
    text = str(cell).strip()
    if text.casefold() in MISSING:
        return None
    return text.partition(".")[0] if re.fullmatch(r"-?\d+\.0+", text) else text


def _number(text: str) -> float | None:
    """None for a text that is no number."""
    try:
        return None if "_" in text else float(text)  # Python reads 1_000, and nobody means it
    except ValueError:
        return None


def _numbers(column: Column, texts: Sequence[str | None]) -> NDArray[np.float64]:
    """[N, 1], NaN where there is no value."""
    values = np.full((len(texts), 1), np.nan)
    for row, text in enumerate(texts):
        if text is None:
            continue
        number = _number(text)
        if number is None:
            raise DataError(
                f"column '{column.name}' holds numbers, but '{text}' is none; mend it, leave the cell empty, or name"
                " the column in data.categorical"
            )
        if not math.isfinite(number):
            raise DataError(f"column '{column.name}' holds '{text}'; expected finite numbers, or an empty cell")
        values[row] = number
    return values


def _one_hot(column: Column, texts: Sequence[str | None]) -> NDArray[np.float64]:
    """[N, categories], NaN where there is no value."""
    number = {category: i for i, category in enumerate(column.categories)}
    values = np.zeros((len(texts), len(number)))
    for row, text in enumerate(texts):
        if text is None:
            values[row] = np.nan
        elif text in number:
            values[row, number[text]] = 1.0
        else:
            raise DataError(
                f"column '{column.name}' holds the category '{text}', which nobody agreed on; its categories are"
                f" {', '.join(column.categories)}: mend it, or add it to the columns that all sites agree on"
            )
    return values


def _filled(
    values: NDArray[np.float64], gaps: NDArray[np.bool_], training: NDArray[np.bool_], column: Column, standard: bool
) -> NDArray[np.float64]:
    """The values [n, inputs] of one site without gaps."""
    known = values[training & ~gaps]
    if column.categories:
        usual = np.zeros(values.shape[1])
        if len(known):
            usual[known.sum(0).argmax()] = 1.0
        return np.where(gaps[:, None], usual, values)
    if not len(known):  # nothing to go by: a value, if a test row has one, would be on a scale of its own
        return np.zeros_like(values) if standard else np.nan_to_num(values)
    filled = np.where(gaps[:, None], np.median(known), values)
    if not standard:
        return filled
    spread = known.std() if known.max() > known.min() else 1.0  # rounding would give a constant some spread
    return np.asarray((filled - known.mean()) / spread)
