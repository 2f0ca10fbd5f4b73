"""What a run recorded, as tables for pandas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from facade.analysis import metrics
from facade.analysis.metrics import Counts
from facade.core.types import Row
from facade.errors import need

if TYPE_CHECKING:
    import pandas


def evaluation_frame(rows: Iterable[Row], about: Mapping[str, Any], cluster: Counts | None) -> pandas.DataFrame:
    """One row per node and evaluation; `about` are columns with one value for all of them."""
    need("pandas", "a DataFrame", "pandas")
    import pandas

    return pandas.DataFrame([{**about, **told} for told in _evaluations(rows, cluster)])


def _evaluations(rows: Iterable[Row], cluster: Counts | None) -> Iterator[dict[str, Any]]:
    for row in rows:
        if row["kind"] == "round":
            continue
        told: dict[str, Any] = {"round": row["round"], "final": row["kind"] == "final", "node": row["node"]}
        told |= {} if cluster is None else {"cluster": int(cluster[row["node"]])}
        told |= {"accuracy": _accuracy(row["confusion"]), "loss": row.get("loss")}
        told |= {"choice": row["choice"]} if "choice" in row else {}
        if "validation_confusion" in row:
            told |= {"validation_accuracy": _accuracy(row["validation_confusion"])}
            told |= {"validation_loss": row["validation_loss"]}
        yield told


def _accuracy(confusion: list[list[int]]) -> float:
    return float(metrics.accuracy(np.array([confusion]))[0])
