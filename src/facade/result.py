"""What a run leaves: rows, a summary computed from them, and a usable model per node."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from facade import metrics, tree
from facade.config import Experiment
from facade.learner import Learner
from facade.metrics import Counts
from facade.tree import Params

Row = dict[str, Any]


@dataclass(frozen=True)
class Result:
    """A finished run."""

    experiment: Experiment
    rows: list[Row]
    """What rows.jsonl holds."""
    summary: Row
    """Metrics of the final evaluation, traffic, hashes."""
    models: Params
    """[n, ...] the deployed model of every node."""
    learner: Learner
    run_dir: Path | None = None

    def model(self, node: int) -> nn.Module:
        """The node's deployed model as a torch module in evaluation mode; it expects inputs
        normalised as in training (`result.learner.inputs.prepare`)."""
        if not 0 <= node < self.experiment.n:
            raise IndexError(f"node {node} does not exist; nodes are 0 to {self.experiment.n - 1}")
        return self.learner.module(tree.rows(self.models, node))


def confusions(rows: list[Row]) -> Counts:
    """[n, C, C] from the evaluation rows of one moment, in node order."""
    return np.array([row["confusion"] for row in rows], dtype=np.int64)


def summarise(rows: list[Row], cluster: Counts | None) -> Row:
    """The numbers of a finished run, from its rows alone."""
    finals = [row for row in rows if row["kind"] == "final"]
    measured = judge(finals, cluster)
    heard = sum(row["bytes"] for row in rows if row["kind"] == "round")
    return measured | {
        "bytes_per_node": heard / len(finals),
        "bytes_final": sum(row["bytes"] for row in finals) / len(finals),
    }


def judge(rows: list[Row], cluster: Counts | None) -> Row:
    """All metrics of one evaluation (its rows in node order)."""
    confusion = confusions(rows)
    nodes = metrics.accuracy(confusion)
    judged: Row = {"all": float(nodes.mean()), "worst_node": float(nodes.min())}
    if cluster is not None:
        accuracies = metrics.group_accuracy(confusion, cluster)
        groups = metrics.pooled(confusion, cluster)
        judged |= {"clusters": accuracies.tolist(), "fair_accuracy": metrics.fair_accuracy(accuracies)}
        judged |= {name: metric(groups) if len(groups) > 1 else None for name, metric in metrics.GROUP_METRICS.items()}
    choice = np.array([row["choice"] for row in rows]) if "choice" in rows[0] else None
    known = choice is not None and cluster is not None
    judged["separated"] = metrics.separated(choice, cluster) if known else None  # type: ignore[arg-type]
    judged["settled"] = metrics.settled(choice, cluster) if known else None  # type: ignore[arg-type]
    judged["choice"] = None if choice is None else choice.tolist()
    return judged
