"""Tables over runs: one line per experiment, its seeds taken together; for people, papers and programs."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from facade.analysis.measured_sites import measured_sites
from facade.analysis.measures import ACCURACY, Measure
from facade.analysis.node_values import is_judged
from facade.analysis.statistics import TEST_NOISE, Estimate, Settlement, estimates, settlement
from facade.core.names import short_ones
from facade.data.clusters import cluster_names
from facade.experiment.decisive_settings import setting
from facade.runs.history import History, judged_by

ORACLE_NOTE = "evaluation.head = 'oracle': tested with the heads best on the test data, which no site can know"
PRIORS = {"flat": "as if all classes were equally frequent", "own": "with every node's own label shares added"}
"""How models that were trained with the balanced loss predict."""


@dataclass(frozen=True)
class Column:
    """A number of `statistics.numbers` and how a table shows it."""

    name: str
    heading: str
    scale: float = 1.0
    digits: int = 0
    counted: bool = False
    """Whether it is a yes or no, shown as the number of seeds with a yes."""


@dataclass(frozen=True)
class TableLine:
    """One experiment."""

    label: dict[str, str]
    """The keys in which the experiments of the table differ, and their values here."""
    seeds: list[int]
    runs: list[str]
    """Directories, in the order of seeds."""
    cells: dict[str, Estimate]
    settlements: list[Settlement | None]
    """Who chose which head, run by run; None without heads."""
    tested_by_oracle: bool = False
    """Whether heads were chosen on test data."""
    prior: str | None = None
    """Which prior counts; None with the plain loss."""
    attack: str | None = None
    """In words, whose accuracies these are and who attacks; None where nobody does."""
    never_learned: Sequence[int] = ()
    """Seeds with which the training loss never fell."""
    measures: dict[str, Any] = field(default_factory=dict)
    """Every measure of every site and cluster."""


@dataclass(frozen=True)
class Table:
    """Experiments, each over its seeds."""

    columns: list[Column]
    lines: list[TableLine]
    unequal: Sequence[str] = ()
    """In words, settings of training that algorithms were not given alike."""
    measure: Measure = ACCURACY
    """What experiments are judged by."""

    @property
    def note(self) -> str:
        """What the numbers are."""
        several = any(len(line.seeds) > 1 for line in self.lines)
        single = any(len(line.seeds) == 1 for line in self.lines)
        parts = ["final = models after the final exchange; highest = best of all evaluations, seen on test data"]
        if self.measure != ACCURACY:
            gains = "; gains are positive where it is lower" if self.measure.lower_is_better else ""
            parts.insert(0, f"{self.measure.word}: {self.measure.says}{gains}")
        if several:
            parts.append("over seeds: mean ± population std, [95 % Student-t interval]")
        if single:
            parts.append(f"one seed: [95 % interval, {TEST_NOISE}]")
        if any(line.tested_by_oracle for line in self.lines):
            parts.append(ORACLE_NOTE)
        for prior in sorted({line.prior for line in self.lines if line.prior is not None}):
            parts.append(f"balanced loss, prior = {prior}: predicted {PRIORS[prior]}")
        attacks = list(dict.fromkeys(line.attack for line in self.lines if line.attack is not None))
        return ". ".join(["; ".join(parts), *self.unequal, *self._failures(), *attacks])

    def _failures(self) -> list[str]:
        """A sentence on runs whose training came to nothing; none where there are none."""
        failed = [
            f"{' '.join(line.label.values())} (seeds {', '.join(map(str, line.never_learned))})"
            for line in self.lines
            if line.never_learned
        ]
        return [f"The training loss never fell, so that nothing was learned: {', '.join(failed)}"] if failed else []


def grouped(runs: Sequence[History]) -> list[list[History]]:
    """Runs of one experiment together, by seed; experiments in the order of their first run."""
    groups: dict[str, list[History]] = {}
    for run in runs:
        groups.setdefault(run.point_hash, []).append(run)
    return [sorted(group, key=lambda run: run.seed) for group in groups.values()]


def labels(groups: Sequence[Sequence[History]]) -> list[dict[str, str]]:
    """Per experiment the algorithm, and whatever else the experiments differ in. Fields that belong
    to one algorithm are no difference to another."""
    points = [group[0].point for group in groups]
    differing = [key for key in dict.fromkeys(key for point in points for key in point) if _differs(key, points)]
    return [
        {"algorithm": str(point["algorithm.name"])} | {key: in_short(setting(point, key)) for key in differing}
        for point in points
    ]


def short_keys(keys: Sequence[str]) -> list[str]:
    """Keys without their sections (of model.name, the section), where that leaves no two alike."""
    last = [key.removesuffix(".name").rpartition(".")[2] for key in keys]
    return [short if last.count(short) == 1 else key for key, short in zip(keys, last, strict=True)]


_PLURALS = {"training.lr": "Learning rates"}
"""Settings that have a plain name."""
_LONGEST = 60
"""Characters of a value in a label; a list of edges may have thousands."""


def in_short(value: Any) -> str:
    """A setting's value as a label has it: one that would fill lines by its beginning and a hash."""
    text = str(value)
    if len(text) <= _LONGEST:
        return text
    return f"{text[:20]}... ({hashlib.sha256(text.encode()).hexdigest()[:8]})"


def _differs(key: str, points: Sequence[dict[str, Any]]) -> bool:
    if key == "algorithm.name":
        return False
    if not key.startswith("algorithm."):
        return len({str(point.get(key)) for point in points}) > 1
    pairs = {(point["algorithm.name"], str(point[key])) for point in points if key in point}
    return len(pairs) > len({name for name, _ in pairs})


def tabulate(runs: Sequence[History], target: float | None = None) -> Table:
    """The table of some runs. Runs of `local` among them are what gains are measured against."""
    measure = judged_by(runs, None)[0].measure
    groups = grouped(runs)
    local = [run for run in runs if run.algorithm == "local"]
    lines = [
        TableLine(
            label,
            [run.seed for run in group],
            [str(run.path) for run in group],
            estimates(group, target, local),
            [settlement(run) for run in group],
            any(run.tested_by_oracle for run in group),
            group[0].final.prior,
            group[0].attack,
            [run.seed for run in group if not run.learned],
            measured_sites(group),
        )
        for label, group in zip(labels(groups), groups, strict=True)
    ]
    present = {name for line in lines for name in line.cells}
    if target is not None:  # even if nobody reached it
        present |= {"rounds_to_target", "bytes_to_target"}
    present |= {"all", *(f"cluster_{c}" for c in range(runs[0].clusters))}  # even if older runs do not have them
    columns = [column for column in (_by(measure, each) for each in _columns(runs, target)) if column.name in present]
    keys = dict.fromkeys(key for group in groups for key in group[0].point if key.startswith("training."))
    differing = [sentence for key in keys if (sentence := unequal(groups, key)) is not None]
    return Table(columns, lines, differing, measure)


def unequal(groups: Sequence[Sequence[History]], key: str) -> str | None:
    """In words, that a setting was tried with other values for one algorithm than for another, so that they are not
    compared on equal terms; None where it was not."""
    tried: dict[str, dict[str, None]] = {}
    for group in groups:
        tried.setdefault(group[0].algorithm, {})[in_short(setting(group[0].point, key))] = None
    if len({frozenset(values) for values in tried.values()}) == 1:
        return None
    called = short_ones(tried)
    each = ", ".join(f"{called[name]} {' and '.join(values)}" for name, values in tried.items())
    return f"{_PLURALS.get(key, f'Values of {key}')} differ: {each}"


def _by(measure: Measure, column: Column) -> Column:
    """A column as it is where experiments are judged by the measure."""
    if measure == ACCURACY or not is_judged(column.name):
        return column
    heading = column.heading.replace("acc.", measure.heading)
    return replace(column, heading=heading, scale=measure.scale, digits=measure.digits)


def _columns(runs: Sequence[History], target: float | None) -> list[Column]:
    clusters = max(run.clusters for run in runs)
    names = cluster_names([run.sizes for run in runs], clusters)
    goal = "" if target is None else f"{100 * target:g}%" if runs[0].measure.percent else f"{target:g}"
    return [
        *(Column(f"cluster_{c}", f"{name} acc.", 100, 2) for c, name in enumerate(names)),
        Column("all", "all acc.", 100, 2),
        *([Column("worst_head", "worst head's acc.", 100, 2)] if clusters < 2 else []),
        Column("worst_node", "worst node", 100, 2),
        Column("fair_accuracy", "fair acc. (final)", 100, 2),
        Column("fair_accuracy_of_means", "fair acc. of means", 100, 2),
        Column("highest_fair_accuracy", "fair acc. (highest)", 100, 2),
        Column("dp", "DP", 1, 4),
        Column("eo", "EO", 1, 4),
        Column("worst_gain", "worst gain over local", 100, 2),
        Column("bytes_per_node", "MB per node", 1e-6, 1),
        Column("rounds_to_target", f"rounds to {goal}", 1, 0),
        Column("bytes_to_target", f"MB to {goal}", 1e-6, 1),
        Column("settled", "settled", counted=True),
        Column("settling_round", "settling round", 1, 0),
        Column("unused_heads", "unused heads", 1, 1),
    ]


# What a cell says


def number(column: Column, value: float) -> str:
    """A value as the column shows it."""
    return f"{value * column.scale:.{column.digits}f}"


def cell(column: Column, line: TableLine) -> tuple[str, str]:
    """A line's estimate for a column and, below it, its interval (empty if there is none)."""
    estimate = line.cells.get(column.name)
    if estimate is None or not estimate.known:
        return "-", ""
    count = len(estimate.points)
    if column.counted:
        yes = sum(1 for point in estimate.known if point)
        if count > 1:
            return f"{yes}/{count}", ""
        return "yes" if yes else "apart" if any(line.cells["separated"].known) else "no", ""
    if estimate.mean is None or estimate.std is None:
        return f"only {len(estimate.known)}/{count}", ""
    shown = number(column, estimate.mean)
    if count > 1 and not estimate.std:  # the same for every seed, such as traffic
        return shown, ""
    if count > 1:
        shown += f" ± {number(column, estimate.std)}"
    interval = estimate.interval
    return shown, "" if interval is None else f"[{number(column, interval.low)}, {number(column, interval.high)}]"


# Ways to write a table down


def to_markdown(table: Table) -> str:
    """A table for a README."""
    headings = [*table.lines[0].label, "seeds", *(column.heading for column in table.columns)]
    body = [
        [*line.label.values(), _seeds(line), *(" ".join(pair).strip() for pair in pairs(table, line))]
        for line in table.lines
    ]
    rules = ["---"] * (len(table.lines[0].label) + 1) + ["--:"] * len(table.columns)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (headings, rules, *body)) + f"\n\n{table.note}\n"


def to_latex(table: Table) -> str:
    """A tabular for a paper: means and standard deviations."""
    headings = [*table.lines[0].label, "seeds", *(column.heading for column in table.columns)]
    align = "l" * (len(headings) - len(table.columns)) + "r" * len(table.columns)
    lines = [f"% {_escaped(table.note)}", rf"\begin{{tabular}}{{{align}}}", r"\hline"]
    lines += [" & ".join(map(_escaped, headings)) + r" \\", r"\hline"]
    for line in table.lines:
        shown = [pair[0].replace(" ± ", r" $\pm$ ") for pair in pairs(table, line)]
        lines.append(" & ".join([*map(_escaped, line.label.values()), _escaped(_seeds(line)), *shown]) + r" \\")
    return "\n".join([*lines, r"\hline", r"\end{tabular}"]) + "\n"


def to_csv(table: Table) -> str:
    """One line per experiment and number: mean, std, interval and every seed's value, unscaled."""
    file = io.StringIO()
    keys = list(table.lines[0].label)
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*keys, "seeds", "number", "mean", "population_std", "low", "high", "interval", "values"])
    for line in table.lines:
        for name, estimate in line.cells.items():
            low, high, kind = estimate.interval or ("", "", "")
            values = " ".join("-" if point is None else repr(point) for point in estimate.points)
            about = [*line.label.values(), " ".join(map(str, line.seeds))]
            writer.writerow([*about, name, _plain(estimate.mean), _plain(estimate.std), low, high, kind, values])
    return file.getvalue()


def to_json(table: Table) -> str:
    """Everything, for programs."""
    about = {"note": table.note, "measure": table.measure.name}
    return json.dumps(about | {"experiments": [_as_json(line) for line in table.lines]}, indent=1) + "\n"


def _as_json(line: TableLine) -> dict[str, Any]:
    numbers = {
        name: {
            "mean": estimate.mean,
            "population_std": estimate.std,
            "interval": None if estimate.interval is None else estimate.interval._asdict(),
            "values": estimate.points,
        }
        for name, estimate in line.cells.items()
    }
    heads = [None if one is None else vars(one) | {"shares": one.shares.tolist()} for one in line.settlements]
    facts = {"label": line.label, "seeds": line.seeds, "runs": line.runs, "numbers": numbers, "settlements": heads}
    facts["measures"] = line.measures
    return facts if line.prior is None else facts | {"prior": line.prior}


def pairs(table: Table, line: TableLine) -> list[tuple[str, str]]:
    """The cells of a line, see `cell`."""
    return [cell(column, line) for column in table.columns]


def _seeds(line: TableLine) -> str:
    return str(len(line.seeds))


def _plain(value: float | None) -> str:
    return "" if value is None else repr(value)


def _escaped(text: str) -> str:
    return text.translate(_LATEX)


_LATEX = str.maketrans(
    {sign: f"\\{sign}" for sign in "_%&#{}$"}
    | {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"}
)
