"""A site's data as the federation that an experiment is set up with: all members but this one hold nothing."""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from facade.errors import ExperimentError
from facade.peers.trust.membership import Membership
from facade.peers.trust.schema import Schema, schema_of_data

if TYPE_CHECKING:
    from facade.data.federation import Federation
    from facade.data.samples import Dataset
    from facade.experiment.config import Experiment


@dataclass(frozen=True)
class OwnData:
    """What a site says of its data."""

    written: dict[str, Any]
    """[data] of its node.toml."""
    where: Path
    """That node.toml."""
    once: Callable[[str, Callable[[], Any]], Any]
    """Gives the data that a function loads, described by a text: those that were loaded last, if they are the same."""

    def federation(self, membership: Membership, experiment: Experiment, number: int) -> Federation:
        """This site's data as a federation in which all others hold nothing."""
        from facade.data.load import load as load_data
        from facade.data.samples import Holdings

        if self.written.get("source", "experiment") == "experiment":
            if experiment.data.source == "given":
                raise ExperimentError(
                    f"{self.where} does not say where this site's data are, and the experiment brings none;"
                    " add [data] with source, root and path"
                )
            described = f"{experiment.seed} {experiment.data.model_dump_json()}"
            whole: Federation = self.once(described, lambda: load_data(experiment.data, experiment.seed))
            if schema_of_data(whole) != membership.schema_:
                raise ExperimentError("the data of this site are not what the membership list describes (schema)")
            rows = [held if node == number else held[:0] for node, held in enumerate(whole.training.rows)]
            return dataclasses.replace(whole, training=Holdings(whole.training.samples, whole.training.nodes, rows))
        written = _with_schema(self.written, membership.schema_)
        dataset: Dataset = self.once(json.dumps(written, default=str), lambda: _dataset(written))
        return _own_federation(dataset, membership.schema_, membership.n, number)


def _with_schema(written: dict[str, Any], schema: Schema) -> dict[str, Any]:
    """A site's own [data] with what all sites agreed on: how values become inputs, and the columns of tables."""
    agreed: dict[str, Any] = {} if schema.scale == "auto" else {"scale": schema.scale}
    if schema.columns:
        agreed["columns"] = [column.model_dump() for column in schema.columns]
    for key, value in agreed.items():
        if written.get(key, value) != value:
            raise ExperimentError(f"node.toml says data.{key} itself, but all sites agreed on another; leave it out")
    return agreed | written


def _dataset(written: dict[str, Any]) -> Dataset:
    """The data that a site's own node.toml names."""
    from facade.data.load import read
    from facade.experiment.config import Experiment

    dataset = read(Experiment.of({"data": {"clusters": "1", "skew": "none"} | written}).data)
    for note in dataset.notes:
        warnings.warn(note, stacklevel=2)
    return dataset


def _own_federation(dataset: Dataset, schema: Schema, n: int, number: int) -> Federation:
    """A site's own data as a federation in which all others hold nothing; classes are matched by name."""
    import torch

    from facade.data.federation import Federation
    from facade.data.matching import matched
    from facade.data.samples import Holdings

    if dataset.columns and dataset.columns != schema.columns:
        raise ExperimentError(
            "the site's data are a table, but the federation did not agree on the columns of one (schema); ask the"
            " admin to make the list with what facade data schema writes"
        )
    own = matched(dataset, schema.classes, schema.shape, "the federation")
    if dataset.scale != schema.scale or (schema.scale == "bits" and dataset.mean != schema.mean):
        raise ExperimentError(
            f"the federation agreed on values of scale '{schema.scale}' with mean {schema.mean[:3]}, but the site's are"
            f" '{dataset.scale}' with mean {dataset.mean[:3]}; convert the site's data to the type of the others'"
        )
    train, test = own.train, own.test
    if own.kept_back is not None:  # nobody validates here, and the others train without such rows too
        train = train[torch.from_numpy(~own.kept_back)]
    if not len(train) or not len(test):
        raise ExperimentError("this site's data have no training or no test samples; both are needed")
    rows = [np.arange(len(train)) if node == number else np.zeros(0, np.int64) for node in range(n)]
    return Federation(
        Holdings(train, np.arange(n), rows),
        [test],
        np.zeros(n, np.int64),
        schema.classes,
        schema.mean,
        schema.std,
        own_tests=True,
        scale=schema.scale,
        columns=schema.columns,
    )
