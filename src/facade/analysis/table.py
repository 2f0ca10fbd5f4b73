"""Tables over runs: one line per experiment, its seeds taken together; for people, papers and programs."""

from __future__ import annotations

import csv
import functools
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from facade.analysis.differences import Seeded, leading
from facade.analysis.experiment_names import labels
from facade.analysis.measured_sites import measured_sites
from facade.analysis.measures import ACCURACY, Measure
from facade.analysis.node_values import is_judged
from facade.analysis.sites import Sites, by_site, site_numbers, sites_of
from facade.analysis.statistics import TEST_NOISE, Estimate, Settlement, estimates, settlement
from facade.analysis.unequal_settings import unequal
from facade.data.clusters import cluster_names
from facade.errors import unknown
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
    better: Literal["higher", "lower"] | None = None
    """What is good; None: neither is."""


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
    comparison: str = ""
    """Lines with the same text here are of the same data and model."""
    sites: Sites | None = None
    """Its sites, where clusters are not known."""

    @property
    def ours(self) -> bool:
        """Whether it is FACADE's."""
        return self.label["algorithm"] == "facade"


@dataclass(frozen=True)
class Table:
    """Experiments, each over its seeds."""

    columns: list[Column]
    lines: list[TableLine]
    unequal: Sequence[str] = ()
    """In words, settings of training that algorithms were not given alike."""
    measure: Measure = ACCURACY
    """What experiments are judged by."""
    numbers: tuple[str, ...] = ()
    """The numbers that were asked for, which programs are given; empty: all."""

    @functools.cached_property
    def leading(self) -> dict[str, set[int]]:
        """By column, the lines that are the best of their data and model there, or cannot be told from it by the
        intervals of the verdict. Where nobody can be told from the best, nobody leads."""
        return {column.name: _leading(column, self.lines) for column in self.columns if column.better is not None}

    def only(self, names: Sequence[str]) -> Table:
        """The same with the columns of these numbers, in their order."""
        known = {column.name: column for column in self.columns}
        every = list(dict.fromkeys([*known, *(name for line in self.lines for name in line.cells)]))
        for name in names:
            if name not in every:
                raise unknown("column", name, every)
        columns = [known.get(name) or Column(name, name.replace("_", " "), 1, 4) for name in names]
        return replace(self, columns=columns, numbers=tuple(names))

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
        if any(self.leading.values()):
            parts.append("bold: the best, and what cannot be told from it")
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


def _leading(column: Column, lines: Sequence[TableLine]) -> set[int]:
    found: set[int] = set()
    for comparison in dict.fromkeys(line.comparison for line in lines):
        known = {
            i: Seeded(line.seeds, line.cells[column.name])
            for i, line in enumerate(lines)
            if line.comparison == comparison and column.name in line.cells
        }
        found |= leading(known, column.better == "higher")
    return found


def grouped(runs: Sequence[History]) -> list[list[History]]:
    """Runs of one experiment together, by seed; experiments in the order of their first run."""
    groups: dict[str, list[History]] = {}
    for run in runs:
        groups.setdefault(run.point_hash, []).append(run)
    return [sorted(group, key=lambda run: run.seed) for group in groups.values()]


def tabulate(runs: Sequence[History], target: float | None = None) -> Table:
    """The table of some runs; `target` is a value of what they are judged by, whose price is wanted. Runs of
    `local` among them are what gains are measured against."""
    measure = judged_by(runs, None)[0].measure
    if target is not None:
        measure.check_limit("target", target)
    groups = grouped(runs)
    lines = [_line(label, group, runs, target) for label, group in zip(labels(groups), groups, strict=True)]
    present = {name for line in lines for name in line.cells}
    if target is not None:  # even if nobody reached it
        present |= {"rounds_to_target", "bytes_to_target"}
    present |= {"all", *(f"cluster_{c}" for c in range(runs[0].clusters))}  # even if older runs do not have them
    columns = [column for column in (_by(measure, each) for each in _columns(runs, target)) if column.name in present]
    keys = dict.fromkeys(key for group in groups for key in group[0].point if key.startswith("training."))
    differing = [sentence for key in keys if (sentence := unequal(groups, key)) is not None]
    return Table(columns, lines, differing, measure)


def _by(measure: Measure, column: Column) -> Column:
    """A column as it is where experiments are judged by the measure."""
    if measure == ACCURACY or not is_judged(column.name):
        return column
    heading, better = column.heading.replace("acc.", measure.heading), column.better
    if measure.lower_is_better and better == "higher" and "gain" not in column.name:  # a gain is good in any case
        better = "lower"
    return replace(column, heading=heading, scale=measure.scale, digits=measure.digits, better=better)


def _line(label: dict[str, str], group: list[History], runs: Sequence[History], target: float | None) -> TableLine:
    first = group[0]
    sites = None if any(run.clusters for run in runs) else sites_of(group, runs)
    cells = estimates(group, target, [run for run in runs if run.algorithm == "local"])
    return TableLine(
        label,
        [run.seed for run in group],
        [str(run.path) for run in group],
        cells if sites is None else cells | site_numbers(sites),
        [settlement(run) for run in group],
        any(run.tested_by_oracle for run in group),
        first.final.prior,
        first.attack,
        [run.seed for run in group if not run.learned],
        measured_sites(group),
        str([item for item in first.point.items() if item[0].startswith(("data.", "model."))]),
        sites,
    )


def _columns(runs: Sequence[History], target: float | None) -> list[Column]:
    clusters = max(run.clusters for run in runs)
    names = cluster_names([run.sizes for run in runs], clusters)
    goal = "" if target is None else f"{100 * target:g}%" if runs[0].measure.percent else f"{target:g}"
    return [
        *(_of_clusters(names) if clusters else _OF_SITES),
        Column("bytes_per_node", "MB per node", 1e-6, 1),
        Column("rounds_to_target", f"rounds to {goal}", 1, 0),
        Column("bytes_to_target", f"MB to {goal}", 1e-6, 1),
        Column("settled", "settled", counted=True),
        Column("settling_round", "settling round", 1, 0),
        Column("unused_heads", "unused heads", 1, 1),
    ]


def _of_clusters(names: Sequence[str]) -> list[Column]:
    """Columns of a federation whose clusters are known."""
    return [
        *(Column(f"cluster_{c}", f"{name} acc.", 100, 2, better="higher") for c, name in enumerate(names)),
        Column("all", "all acc.", 100, 2, better="higher"),
        *([Column("worst_head", "worst head's acc.", 100, 2)] if len(names) < 2 else []),
        Column("worst_node", "worst node", 100, 2, better="higher"),
        Column("fair_accuracy", "fair acc. (final)", 100, 2, better="higher"),
        Column("fair_accuracy_of_means", "fair acc. of means", 100, 2),
        Column("highest_fair_accuracy", "fair acc. (highest)", 100, 2),
        Column("dp", "DP", 1, 4, better="lower"),
        Column("eo", "EO", 1, 4, better="lower"),
        Column("worst_gain", "worst gain over local", 100, 2, better="higher"),
    ]


_OF_SITES = [
    Column("worst_site", "worst site", 100, 2, better="higher"),
    Column("all", "mean of sites", 100, 2, better="higher"),
    Column("gap_between_sites", "gap between sites", 100, 2, better="lower"),
    Column("worst_gain_over_local", "worst gain over local", 100, 2, better="higher"),
    Column("mean_gain_over_local", "mean gain over local", 100, 2, better="higher"),
    Column("worst_gain_over_el", "worst gain over EL", 100, 2, better="higher"),
    Column("mean_gain_over_el", "mean gain over EL", 100, 2, better="higher"),
    Column("worst_head", "worst head's acc.", 100, 2),
]
"""Columns of one whose clusters are not."""


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
        [*_labels(line, "**{}**"), _seeds(line), *(" ".join(pair).strip() for pair in _marked(table, i, "**{}**"))]
        for i, line in enumerate(table.lines)
    ]
    rules = ["---"] * (len(table.lines[0].label) + 1) + ["--:"] * len(table.columns)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (headings, rules, *body)) + f"\n\n{table.note}\n"


def to_latex(table: Table) -> str:
    """A tabular for a paper: means and standard deviations."""
    headings = [*table.lines[0].label, "seeds", *(column.heading for column in table.columns)]
    align = "l" * (len(headings) - len(table.columns)) + "r" * len(table.columns)
    lines = [f"% {_escaped(table.note)}", rf"\begin{{tabular}}{{{align}}}", r"\hline"]
    lines += [" & ".join(map(_escaped, headings)) + r" \\", r"\hline"]
    for i, line in enumerate(table.lines):
        shown = [pair[0].replace(" ± ", r" $\pm$ ") for pair in _marked(table, i, r"\textbf{{{}}}")]
        lines.append(" & ".join([*_labels(line, r"\textbf{{{}}}", _escaped), _escaped(_seeds(line)), *shown]) + r" \\")
    return "\n".join([*lines, r"\hline", r"\end{tabular}"]) + "\n"


def to_csv(table: Table) -> str:
    """One line per experiment and number: mean, std, interval and every seed's value, unscaled. Where clusters are not
    known, numbers of a site have its name behind a colon."""
    file = io.StringIO()
    keys = list(table.lines[0].label)
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*keys, "seeds", "number", "mean", "population_std", "low", "high", "interval", "values"])
    for line in table.lines:
        for name, estimate in _numbers(table, line).items():
            low, high, kind = estimate.interval or ("", "", "")
            values = " ".join("-" if point is None else repr(point) for point in estimate.points)
            about = [*line.label.values(), " ".join(map(str, line.seeds))]
            writer.writerow([*about, name, _plain(estimate.mean), _plain(estimate.std), low, high, kind, values])
    return file.getvalue()


def to_json(table: Table) -> str:
    """Everything, or the numbers that were asked for, for programs."""
    lines = [_as_json(line, _numbers(table, line)) for line in table.lines]
    return json.dumps({"note": table.note, "measure": table.measure.name, "experiments": lines}, indent=1) + "\n"


def _numbers(table: Table, line: TableLine) -> dict[str, Estimate]:
    """What programs are given of a line, by name."""
    if table.numbers:
        return {name: line.cells[name] for name in table.numbers if name in line.cells}
    return line.cells if line.sites is None else line.cells | by_site(line.sites)


def _as_json(line: TableLine, cells: dict[str, Estimate]) -> dict[str, Any]:
    numbers = {
        name: {
            "mean": estimate.mean,
            "population_std": estimate.std,
            "interval": None if estimate.interval is None else estimate.interval._asdict(),
            "values": estimate.points,
        }
        for name, estimate in cells.items()
    }
    heads = [None if one is None else vars(one) | {"shares": one.shares.tolist()} for one in line.settlements]
    facts = {"label": line.label, "seeds": line.seeds, "runs": line.runs, "numbers": numbers, "settlements": heads}
    facts["measures"] = line.measures
    facts |= {} if line.sites is None else {"groups": [vars(division) for division in line.sites.groups]}
    return facts if line.prior is None else facts | {"prior": line.prior}


def pairs(table: Table, line: TableLine) -> list[tuple[str, str]]:
    """The cells of a line, see `cell`."""
    return [cell(column, line) for column in table.columns]


def _labels(line: TableLine, mark: str, written: Callable[[str], str] = str) -> list[str]:
    """The values of a line's label, the algorithm's name marked where it is FACADE's."""
    name, *others = map(written, line.label.values())
    return [mark.format(name) if line.ours else name, *others]


def _marked(table: Table, line: int, mark: str) -> list[tuple[str, str]]:
    """The cells of a line, those that lead marked."""
    return [
        (mark.format(number) if line in table.leading.get(column.name, ()) else number, interval)
        for column, (number, interval) in zip(table.columns, pairs(table, table.lines[line]), strict=True)
    ]


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
