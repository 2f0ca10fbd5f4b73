"""Many runs from one file: a grid of settings times seeds, computed once however often it is called."""

from __future__ import annotations

import csv
import io
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from facade.analysis.measures import MEASURES
from facade.analysis.metrics import GROUP_METRICS
from facade.analysis.statistics import validated
from facade.core.names import short, short_ones
from facade.errors import ExperimentError, unknown
from facade.experiment.config import Experiment
from facade.files import store
from facade.runs.checkpoint import Checkpoints
from facade.runs.history import hash_of, load, point_of
from facade.runs.run_directory import RunDirectory

LOWER_IS_BETTER = {"loss", "gap", *GROUP_METRICS, *(m.name for m in MEASURES.values() if m.lower_is_better)}
HIGHER_IS_BETTER = ["all", "worst_node", "worst_cluster", "fair_accuracy", "balanced-accuracy", "auc"]
SELECTABLE = [*HIGHER_IS_BETTER, *sorted(LOWER_IS_BETTER)]


@dataclass(frozen=True)
class Job:
    """One run of a sweep."""

    experiment: Experiment
    path: Path
    point: tuple[str, ...]
    """Where in the grid it is, `section.key=value` each."""

    @property
    def finished(self) -> bool:
        """Whether it need not be computed."""
        return RunDirectory(self.path).finished

    @property
    def done(self) -> int:
        """Rounds that an earlier call computed and a checkpoint keeps."""
        return Checkpoints(RunDirectory(self.path)).newest_round


@dataclass(frozen=True)
class Sweep:
    """What to run."""

    file: Path
    out: Path
    grid: tuple[str, ...] = ()
    """`section.key=value,value,...` each."""
    seeds: tuple[int, ...] = ()
    """Empty: the seed of the file."""
    settings: tuple[str, ...] = ()
    preset: str | None = None

    def jobs(self) -> list[Job]:
        """The runs of the sweep. Points of the grid that come to the same experiment (a setting that
        an algorithm does not have) are run once."""
        if not self.grid and not self.seeds:
            raise ExperimentError(
                "there is nothing to sweep over; give `grid`, such as training.lr=0.01,0.05, or `seeds`, such as 1,2,3"
            )
        jobs: dict[str, Job] = {}
        for point in points(self.grid):
            for seed in [[f"seed={seed}"] for seed in self.seeds] or [[]]:
                experiment = Experiment.load(self.file, [*self.settings, *point, *seed], self.preset)
                jobs.setdefault(experiment.hash, Job(experiment, self.out / directory_name(experiment), point))
        for job in jobs.values():
            RunDirectory(job.path).check(job.experiment, resume=True)
        return list(jobs.values())


def directory_name(experiment: Experiment) -> str:
    """A directory name that says what is inside; equal marks are repetitions with other seeds."""
    algorithm = short(experiment.algorithm["name"])
    return f"{experiment.name}-{algorithm}-{_mark(experiment)[:8]}-seed{experiment.seed}"


def _mark(experiment: Experiment) -> str:
    return hash_of(point_of(experiment.model_dump()))


def points(grid: Iterable[str]) -> list[tuple[str, ...]]:
    """All combinations of `section.key=value,value,...` as settings; of no grid, the empty one."""
    axes = []
    for axis in grid:
        key, equals, text = axis.partition("=")
        values = split_values(text)
        if not key.strip() or not equals or not values:
            raise ExperimentError(f"`grid` {axis}: expected section.key=value,value, such as training.lr=0.01,0.05")
        axes.append([f"{key.strip()}={value}" for value in values])
    return list(itertools.product(*axes))


def split_values(text: str) -> list[str]:
    """Values separated by commas; a comma inside brackets or quotes separates nothing."""
    values, depth, quote = [""], 0, ""
    for letter in text:
        if letter == "," and not depth and not quote:
            values.append("")
            continue
        if letter in "\"'":
            quote = "" if letter == quote else quote or letter
        elif not quote:
            depth += (letter in "[{") - (letter in "]}")
        values[-1] += letter
    return [value.strip() for value in values if value.strip()]


# Choosing by validation data


@dataclass(frozen=True)
class Candidate:
    """A point of the grid for one algorithm, and how it did on validation data."""

    experiment: Experiment
    point: tuple[str, ...]
    values: list[float | None]
    """One per seed; None: that run failed, or has no such number."""
    chosen: bool = False

    @property
    def mean(self) -> float | None:
        """Over seeds; None unless all of them have the number."""
        numbers = [value for value in self.values if value is not None]
        return float(np.mean(numbers)) if len(numbers) == len(self.values) else None


def check_selection(select: str, jobs: Sequence[Job]) -> str:
    """The number that `validation.NUMBER` names; refuses test data and runs without validation data."""
    where, _, number = select.partition(".")
    if where != "validation":
        raise ExperimentError(
            f"`select` {select}: choosing on test data would make the test worthless;"
            " expected validation.fair_accuracy or alike"
        )
    if number not in SELECTABLE:
        raise unknown("number to select by", number, SELECTABLE)
    without = [job for job in jobs if job.experiment.data.validation == 0]
    if without:
        raise ExperimentError(f"`select` {select} needs validation data; set data.validation, such as 0.1")
    if number in {"fair_accuracy", "gap", *GROUP_METRICS} and any(len(job.experiment.data.sizes) < 2 for job in jobs):
        raise ExperimentError(f"`select` {select} needs two clusters or more; expected validation.all or alike")
    return number


def candidates(jobs: Sequence[Job], number: str) -> list[Candidate]:
    """Every point of the grid; of each algorithm, the one with the best mean over seeds is chosen.
    A point with a failed run cannot be. Nothing here looks at test data."""
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        groups.setdefault(_mark(job.experiment), []).append(job)
    everyone = [Candidate(g[0].experiment, g[0].point, [_validated(j, number) for j in g]) for g in groups.values()]
    best: dict[str, Candidate] = {}
    sign = -1 if number in LOWER_IS_BETTER else 1
    for candidate in everyone:
        name = candidate.experiment.algorithm["name"]
        if candidate.mean is None:
            continue
        if name not in best or sign * candidate.mean > sign * (best[name].mean or 0.0):
            best[name] = candidate
    return [Candidate(c.experiment, c.point, c.values, chosen=any(c is b for b in best.values())) for c in everyone]


def _validated(job: Job, number: str) -> float | None:
    if not job.finished:
        return None
    run = load(job.path)
    value = validated(run.final, run.cluster).get(number)
    return value if value is not None and math.isfinite(value) else None


def write_selection(candidates: Sequence[Candidate], select: str, out: Path) -> list[Path]:
    """selection.csv with every point, and the chosen experiment of every algorithm as TOML."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["algorithm", "point", f"mean {select}", "chosen", "values"])
    written = []
    names = short_ones(candidate.experiment.algorithm["name"] for candidate in candidates)
    for candidate in candidates:
        name = candidate.experiment.algorithm["name"]
        values = " ".join("none" if value is None else repr(value) for value in candidate.values)
        mean = "" if candidate.mean is None else repr(candidate.mean)
        writer.writerow([name, " ".join(candidate.point), mean, "yes" if candidate.chosen else "", values])
        if candidate.chosen:
            path = out / f"chosen-{names[name].replace(':', '.')}.toml"
            whole = candidate.experiment.with_("runtime.threads=0")  # the sweep gave every run a part of the machine
            store.replace(path, whole.toml().encode())
            written.append(path)
    store.replace(out / "selection.csv", file.getvalue().encode())
    return [out / "selection.csv", *written]
