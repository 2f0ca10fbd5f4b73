"""The [data] table of an experiment: where the data come from and how they are divided."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from facade.core.section import Finite, Fraction, Positive, Section, sentence
from facade.data.clusters import UNKNOWN, cluster_sizes
from facade.data.columns import Column
from facade.data.samples import Scale
from facade.errors import ExperimentError


class DataSection(Section):
    """Where the data come from and how they are divided."""

    source: str
    """Where images and labels come from: `facade list datasets`, or package.module:function."""
    clusters: Annotated[str, BeforeValidator(lambda given: str(given) if type(given) is int else given)]
    """Nodes per cluster, e.g. "30:2"; of one cluster, 32 or "32"; "unknown": as many nodes as the source has."""
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
    """Folder or file below root, for the sources "folder", "npz", "csv" and "parquet"."""
    size: Positive = 64
    """Height and width in pixels, for folders of images."""
    channels: Literal["auto", 1, 3] = "auto"
    """Gray or RGB, for folders of images; "auto": RGB unless all images are gray."""
    scale: Scale = "auto"
    """How values become inputs: "bits" by the range of their type, "range" and "standard" by those of the training
    samples, "none" as they are, "tokens" as numbers to look up; "auto": bytes and 16 bits as "bits", others as
    "none", columns of tables as "standard" at every site."""
    label: str = ""
    """The column that holds the classes, for tables."""
    site: str = ""
    """The column that says whose a row is, for tables of many sites in one file."""
    split: str = ""
    """The column that says train, test or validation, for tables; without it, test_fraction is held out."""
    group: str = ""
    """The column whose rows with one value (a patient) are held out together, or not, for tables."""
    categorical: list[str] = Field(default_factory=list)
    """Columns of tables that hold categories though they look like numbers."""
    ignore: list[str] = Field(default_factory=list)
    """Columns of tables that are not used."""
    columns: list[str | Column] = Field(default_factory=list)
    """Columns of tables that are used, by name or with all their categories; none: all."""

    @property
    def sizes(self) -> list[int]:
        """Nodes per cluster; empty where nothing but the source knows how many nodes there are."""
        return cluster_sizes(self.clusters)

    @model_validator(mode="before")
    @classmethod
    def _unknown_clusters_imply(cls, written: Any) -> Any:
        if isinstance(written, Mapping) and written.get("clusters") == UNKNOWN:
            return {"partition": "natural", "skew": "none"} | dict(written)
        return written

    @model_validator(mode="after")
    def _clusters_make_sense(self) -> Self:
        if self.clusters == UNKNOWN:
            for key, needed in (("partition", "natural"), ("skew", "none")):
                if getattr(self, key) != needed:
                    raise ValueError(
                        f"clusters = '{UNKNOWN}' leaves nodes as the source has them, so {key} ="
                        f" '{getattr(self, key)}' is not possible; leave {key} out, or say nodes per cluster"
                    )
            return self
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
