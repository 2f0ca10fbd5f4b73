"""The [data] table of an experiment: where the data come from and how they are divided."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from facade.core.section import Finite, Fraction, Positive, Section, sentence
from facade.data.clusters import cluster_sizes
from facade.errors import ExperimentError


class DataSection(Section):
    """Where the data come from and how they are divided."""

    source: str
    """Where images and labels come from: `facade list datasets`, or package.module:function."""
    clusters: Annotated[str, BeforeValidator(lambda given: str(given) if type(given) is int else given)]
    """Nodes per cluster, e.g. "30:2"; of one cluster, 32 or "32"."""
    skew: str = "rotate"
    """How clusters differ: `facade list skews`, several joined by "+", or package.module:function."""
    partition: str = "stratified"
    """How images are divided among nodes: `facade list partitions`, or package.module:function."""
    per_class: Positive = 4
    """Images per class and node, for partition "sampled"."""
    alpha: Finite = 0.5
    """How alike nodes are, for partition "dirichlet": the smaller, the less."""
    shards_per_node: Positive = 2
    """Pieces a node is dealt, for partition "shards"."""
    few_nodes: Annotated[int, Field(ge=0)] = 0
    """How many nodes, the first ones, hold few images, for partition "uneven"."""
    few_rows: Positive = 6
    """How many images those hold at most."""
    groups: list[list[int]] = Field(default_factory=list)
    """Classes of each cluster, for skew "labels"."""
    severity: Finite = 1.0
    """Strength of the skews blur, contrast, brightness and noise."""
    validation: Fraction = 0.0
    """Share of the training images kept back for validation."""
    test_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Share of every class held out for testing, where a source has no test split of its own."""
    root: str = "data"
    """Directory that holds all data sets."""
    path: str = ""
    """Folder or file below root, for the sources "folder" and "npz"."""
    size: Positive = 64
    """Height and width in pixels, for folders of images."""
    channels: Literal["auto", 1, 3] = "auto"
    """Gray or RGB, for folders of images; "auto": RGB unless all images are gray."""

    @property
    def sizes(self) -> list[int]:
        """Nodes per cluster."""
        return cluster_sizes(self.clusters)

    @model_validator(mode="after")
    def _clusters_make_sense(self) -> Self:
        parts = self.clusters.split(":")
        if not all(part.isdecimal() and int(part) > 0 for part in parts):
            raise ValueError(f"clusters = '{self.clusters}' makes no sense; expected nodes per cluster, such as '30:2'")
        return self


class _OnlyData(Section):
    """An experiment of which nothing but the data is asked."""

    data: DataSection


def data_section(written: Mapping[str, Any]) -> DataSection:
    """The section that a dict describes; ExperimentError, in words, if it makes no sense."""
    try:
        return _OnlyData.model_validate({"data": dict(written)}).data
    except ValidationError as error:
        raise ExperimentError(sentence(error, {"data": DataSection})) from None
