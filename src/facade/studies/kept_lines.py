"""What a study keeps of its runs: one line of JSON each, in one compressed file."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facade.analysis import metrics
from facade.analysis.metrics import Counts
from facade.attacks.poisoned_data import TARGET
from facade.core.types import Row
from facade.files import store

BEFORE = 40
"""The last round of which dropped messages are not counted: by then heads have parted."""


@dataclass(frozen=True)
class Case:
    """Runs that differ in nothing but their seeds."""

    part: str
    """The question it belongs to."""
    label: str
    """What tables call it."""
    settings: Mapping[str, Any]
    """`section.key`: value; together with the seed, all that the experiment says."""
    seeds: tuple[int, ...]

    def key(self, seed: int) -> str:
        """What a run is known by."""
        return json.dumps([dict(sorted(self.settings.items())), seed], sort_keys=True)

    @property
    def attackers(self) -> list[int]:
        """Nodes whose accuracies do not count."""
        return list(self.settings.get("attack.nodes", []))


@dataclass(frozen=True)
class KeptRun:
    """What a line says of a run. Accuracies and heads are those of honest nodes."""

    seed: int
    confusion: Counts
    """[n, C, C] of the final evaluation."""
    choice: list[int] | None
    cluster: Counts
    settled: bool | None
    found: dict[str, float] = field(default_factory=dict)
    """What else the run noted at its end, such as heads_worth."""
    attackers: list[int] = field(default_factory=list)
    dropped: list[int] | None = None
    """[n] by sender, how often a node that heard it did not use its message, in part or whole, after round BEFORE;
    None without a guard."""
    gates_closed: int | None = None
    """How often a node's last gate was closed after round BEFORE; None without a guard."""
    triggered: float | None = None
    """Share of the samples with a backdoor's trigger that honest nodes take for its target; None without one."""
    diverged: bool = False
    """Whether the run came to no end; its accuracies are those of guessing."""
    measured: list[float | None] = field(default_factory=list)
    """[n] of real sites, how well each does on its own test samples (`of_sites`)."""
    validated: list[float | None] = field(default_factory=list)
    """[n] and on those that it kept back."""

    @property
    def honest(self) -> NDArray[np.bool_]:
        """[n]"""
        return ~np.isin(np.arange(len(self.cluster)), self.attackers)

    @property
    def clusters(self) -> list[float]:
        """Accuracy of every cluster, in per cent."""
        accuracies = metrics.group_accuracy(self.confusion[self.honest], self.cluster[self.honest])
        return [100 * float(share) for share in accuracies]

    @property
    def worst_node(self) -> float:
        """In per cent."""
        return 100 * float(metrics.accuracy(self.confusion[self.honest]).min())

    @property
    def heads(self) -> int:
        """Heads in use."""
        return 0 if self.choice is None else len(set(np.array(self.choice)[self.honest].tolist()))


def line_of(case: Case, seed: int, summary: Row, finals: list[Row], last: list[Row], cluster: Counts) -> Row:
    """The line of a finished run, from its summary, its final evaluation and the notes of its last round. Nodes with
    one model and one test set have one confusion matrix: it is kept once."""
    matrices = [json.dumps(np.array(row["confusion"]).ravel().tolist(), separators=(",", ":")) for row in finals]
    each = list(dict.fromkeys(matrices))
    values = {
        name: [row[name] for row in last if row.get(name) is not None]  # a node that was away knows less
        for name in ("heads_found", "heads_worth")
    }
    noted = {name: float(np.median(known)) for name, known in values.items() if known}
    return {
        "settings": dict(case.settings),
        "seed": seed,
        "confusion": [json.loads(matrix) for matrix in each],
        "of_node": [each.index(matrix) for matrix in matrices],
        "cluster": cluster.tolist(),
        "choice": summary["choice"],
        "settled": summary["settled"],
        "noted": noted,
    }


def of_guard_and_attack(case: Case, finals: list[Row], rounds: list[Row]) -> Row:
    """What a line keeps besides of a run with a guard, or with a backdoor, from its final evaluation and the rows of
    all rounds. What is dropped of a message counts once for every node and round, whichever parts that are."""
    kept: Row = {}
    late = [row for row in rounds if row["round"] > BEFORE]
    if late and "dropped" in late[0]:
        counts = [0] * len(finals)
        for sender in (sender for row in late for sender in set(row["dropped"]) if sender >= 0):
            counts[sender] += 1
        kept |= {"dropped": counts, "gates_closed": sum(bool(row["gate_closed"]) for row in late)}
    if "triggered_confusion" in finals[0]:
        seen = np.array([row["triggered_confusion"] for row in finals if row["node"] not in case.attackers])
        kept["triggered"] = round(float((seen[:, :, TARGET].sum(1) / seen.sum((1, 2))).mean()), 4)
    return kept


def of_sites(finals: list[Row]) -> Row:
    """What a line keeps besides of a run on real sites, from its final evaluation: `measured` and `validated` [n], the
    area under the ROC curve of two classes, the accuracy of more; None where a node has samples of one class alone."""
    return {
        "measured": [_measured(row["confusion"], row["measures"]) for row in finals],
        "validated": [_measured(row["validation_confusion"], row["validation_measures"]) for row in finals],
    }


def _measured(confusion: list[list[int]], measures: Row) -> float | None:
    if len(confusion) > 2:
        return round(float(metrics.accuracy(np.array(confusion))), 4)
    return None if measures["auc"] is None else round(measures["auc"][0], 4)


def diverged_line(case: Case, seed: int, cluster: Counts, classes: int) -> Row:
    """The line of a run that came to no end: its nodes guess, every class as often as any other."""
    return {
        "settings": dict(case.settings),
        "seed": seed,
        "confusion": [[1] * classes**2],
        "of_node": [0] * len(cluster),
        "cluster": cluster.tolist(),
        "choice": None,
        "settled": None,
        "noted": {},
        "diverged": True,
    }


class KeptLines:
    """The lines of a study, by what their runs are known by."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines: dict[str, Row] = {}
        if path.exists():
            for text in gzip.decompress(path.read_bytes()).decode().splitlines():
                self.add(json.loads(text))

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, line: Row) -> None:
        """Keep a line."""
        self._lines[json.dumps([dict(sorted(line["settings"].items())), line["seed"]], sort_keys=True)] = line

    def write(self) -> None:
        """Write all lines, in an order and with bytes that do not depend on when they were computed."""
        text = "".join(json.dumps(self._lines[key], separators=(",", ":")) + "\n" for key in sorted(self._lines))
        store.replace(self.path, gzip.compress(text.encode(), mtime=0))

    def missing(self, cases: Iterable[Case]) -> list[tuple[Case, int]]:
        """Runs that are not here yet, each once; seed by seed, so that those of one seed can soon be compared."""
        wanted = {case.key(seed): (case, seed) for case in cases for seed in case.seeds}
        return sorted((run for key, run in wanted.items() if key not in self._lines), key=lambda run: run[1])

    def runs(self, case: Case) -> list[KeptRun]:
        """The runs of a case that are here, by seed."""
        lines = (self._lines.get(case.key(seed)) for seed in case.seeds)
        return [_kept_run(line) for line in lines if line is not None]


def _kept_run(line: Row) -> KeptRun:
    each = np.array(line["confusion"], dtype=np.int64)
    size = round(each.shape[1] ** 0.5)
    confusion = each.reshape(-1, size, size)[line["of_node"]]
    cluster = np.array(line["cluster"], dtype=np.int64)
    return KeptRun(
        line["seed"],
        confusion,
        line["choice"],
        cluster,
        line["settled"],
        line["noted"],
        line["settings"].get("attack.nodes", []),
        line.get("dropped"),
        line.get("gates_closed"),
        line.get("triggered"),
        line.get("diverged", False),
        line.get("measured", []),
        line.get("validated", []),
    )
