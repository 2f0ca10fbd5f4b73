"""What all sites' data must look like: the part of a list that they agree on before anything is trained."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from facade.data.columns import Column, in_order
from facade.data.federation import Federation
from facade.data.samples import Dataset, Scale
from facade.errors import ExperimentError

LARGEST_SAMPLE = 1 << 24
"""Values of one sample."""


class ListPart(BaseModel):
    """A part of the list: frozen, with no keys but its own, and finite numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Schema(ListPart):
    """What all sites' data must look like."""

    classes: list[str] = Field(min_length=2)
    shape: list[Annotated[int, Field(gt=0)]]
    """(channels, height, width) of images, or (values,) of rows."""
    mean: list[float]
    std: list[Annotated[float, Field(gt=0)]]
    """Both per channel, or one number for all."""
    scale: Scale = "auto"
    """How values become inputs, with mean and std (`facade.data.scales`)."""
    columns: list[Column] = []
    """The columns of the sites' tables, of which the values are made; none where data are no tables."""

    @model_validator(mode="after")
    def _fits_together(self) -> Schema:
        if len({column.name for column in self.columns}) < len(self.columns):
            raise ValueError("two columns have the same name; name every column once")
        if len(set(self.classes)) < len(self.classes):
            raise ValueError(f"classes {self.classes} are not all different")
        if len(self.shape) not in (1, 3, 4):
            raise ValueError(
                f"shape {self.shape} is not possible; expected [channels, height, width] or [values], or, of volumes,"
                " [channels, depth, height, width]"
            )
        if self.columns and self.shape != [sum(len(column.inputs) for column in self.columns)]:
            raise ValueError(
                f"shape {self.shape} does not fit the columns, which are"
                f" {sum(len(column.inputs) for column in self.columns)} values"
            )
        if math.prod(self.shape) > LARGEST_SAMPLE:
            raise ValueError(f"shape {self.shape} is too large; expected at most {LARGEST_SAMPLE:,} values a sample")
        for name, numbers in (("mean", self.mean), ("std", self.std)):
            if len(numbers) not in (1, self.shape[0]):
                raise ValueError(f"{name} has {len(numbers)} numbers; expected 1 or {self.shape[0]}, one per channel")
        return self


def schema_of_data(data: Dataset | Federation) -> Schema:
    """What data look like."""
    samples = data.train if isinstance(data, Dataset) else data.training.samples
    return Schema(
        classes=data.classes,
        shape=list(samples.x.shape[1:]),
        mean=data.mean,
        std=data.std,
        scale=data.scale,
        columns=data.columns,
    )


def agreed(schemas: Sequence[Schema]) -> Schema:
    """What the data of all sites look like: classes, categories and gaps of any of them; ExperimentError where the
    sites differ in more."""
    first = schemas[0]
    columns = [_agreed_column(of_all) for of_all in zip(*(schema.columns for schema in schemas), strict=False)]
    for schema in schemas:
        names = ([column.name for column in some.columns] for some in (first, schema))
        if len({tuple(each) for each in names}) > 1:
            raise ExperimentError("the sites' tables have other columns, or in another order; data.columns says which")
        if (schema.scale, schema.mean, schema.std) != (first.scale, first.mean, first.std):
            raise ExperimentError(
                f"the sites' values are not scaled alike ({first.scale}, mean {first.mean[:3]}; {schema.scale}, mean"
                f" {schema.mean[:3]}); use data.scale = 'auto' or 'none', or write one schema by hand"
            )
        if not columns and schema.shape != first.shape:
            raise ExperimentError(f"the sites' samples have shapes {first.shape} and {schema.shape}; make them alike")
    classes = [name for schema in schemas for name in schema.classes]
    shape = [sum(len(column.inputs) for column in columns)] if columns else first.shape
    alike = all(schema.classes == first.classes for schema in schemas)
    found = first.classes if alike else in_order(classes)
    return first.model_copy(update={"classes": found, "shape": shape, "columns": columns})


def _agreed_column(columns: Sequence[Column]) -> Column:
    """One column of all sites."""
    if any(column.categories for column in columns) and not all(column.categories for column in columns):
        raise ExperimentError(
            f"column '{columns[0].name}' holds numbers at one site and categories at another; name it in"
            " data.categorical at all of them"
        )
    categories = in_order([category for column in columns for category in column.categories])
    return Column(name=columns[0].name, categories=categories, missing=any(column.missing for column in columns))
