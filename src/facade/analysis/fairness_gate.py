"""The fairness gate: clauses that runs must keep, judged from their recorded confusion matrices and measures."""

from __future__ import annotations

import math
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from facade.analysis.measures import ACCURACY, MEASURES, Measure
from facade.analysis.statistics import ROUNDING, Estimate, alone, estimates
from facade.analysis.table import ORACLE_NOTE, grouped, labels
from facade.errors import ExperimentError, unknown
from facade.runs.history import History, judged_by

Bound = Literal["min", "max", "must"]
Outcome = Literal["kept", "broken", "not judged"]


@dataclass(frozen=True)
class Clause:
    """A kind of promise."""

    bound: Bound
    number: str
    """The number of `facade.analysis.statistics` that is bounded."""
    says: str
    low: float = 0.0
    high: float = 1.0
    """Limits that make sense."""
    by_measure: bool = False
    """Whether it is about what the runs are judged by; else it is about accuracies or heads in any case."""


CLAUSES: dict[str, Clause] = {
    "min_cluster_accuracy": Clause("min", "worst_cluster", "final accuracy of the worst cluster"),
    "min_cluster": Clause("min", "worst_cluster", "measure of the worst cluster, if more is better", by_measure=True),
    "max_cluster": Clause(
        "max", "worst_cluster", "measure of the worst cluster, if less is better", high=math.inf, by_measure=True
    ),
    "max_gap": Clause("max", "gap", "largest difference between the clusters' final measures", by_measure=True),
    "max_equalized_odds": Clause("max", "eo", "equalized odds of the final models", high=2.0),
    "min_fair_accuracy": Clause("min", "fair_accuracy", "final fair accuracy"),
    "min_gain_over_local": Clause(
        "min", "worst_gain", "what the worst-off node gains over training alone", low=-1.0, by_measure=True
    ),
    "must_separate": Clause("must", "separated", "no head serves two clusters, in any seed"),
    "must_settle": Clause("must", "settled", "every cluster has one head of its own, in every seed"),
}


@dataclass(frozen=True)
class Verdict:
    """One clause, judged for one experiment."""

    experiment: str
    clause: str
    limit: float | bool
    outcome: Outcome
    estimate: Estimate | None = None
    reason: str = ""
    """Why it could not be judged, or how it was broken, in words."""
    measure: Measure = ACCURACY
    """What it is about, where it is not about heads."""

    @property
    def close(self) -> bool:
        """Whether the limit lies inside the interval: another seed, or other test images, might turn
        the verdict."""
        interval = self.estimate.interval if self.estimate else None
        return interval is not None and interval.low <= self.limit <= interval.high

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        of = "" if self.measure == ACCURACY else f" ({self.measure.word})"
        words = f"{self.clause} = {str(self.limit).lower()}{of}: {self.outcome}"
        if self.estimate is not None and self.estimate.mean is not None and not isinstance(self.limit, bool):
            words += f", {self.estimate.mean:.4f}"
            if self.estimate.interval is not None:
                low, high, kind = self.estimate.interval
                words += f" [{low:.4f}, {high:.4f}] ({kind})"
            if self.close:
                words += ", but the limit lies inside the interval"
        return f"{words}; {self.reason}" if self.reason else words


Contract = dict[str, float | bool | str]
"""Clauses and their limits; and, where the contract says it, the `measure` by which runs are judged."""


def read(path: str | Path) -> Contract:
    """The contract of a file."""
    try:
        written = tomllib.loads(Path(path).read_text())
    except OSError as error:
        raise ExperimentError(f"contract {path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ExperimentError(f"contract {path} is not valid TOML: {error}") from None
    measure = written.get("measure")
    if measure is not None and measure not in MEASURES:
        raise unknown("measure", str(measure), MEASURES)
    for name, limit in written.items():
        if name != "measure":
            _check(name, limit, MEASURES[measure or ACCURACY.name])
    clauses = {name: limit for name, limit in written.items() if limit is not False}
    if not clauses.keys() - {"measure"}:
        raise ExperimentError(f"contract {path} has no clause; known: {', '.join(CLAUSES)}")
    return clauses


def _check(name: str, limit: Any, measure: Measure) -> None:
    if name not in CLAUSES:
        raise unknown("clause", name, CLAUSES)
    clause = CLAUSES[name]
    if clause.by_measure and not measure.limited:
        clause = replace(clause, low=-math.inf if clause.low < 0 else 0.0, high=math.inf)
    if clause.bound == "must":
        if not isinstance(limit, bool):
            raise ExperimentError(f"{name} = {limit!r} makes no sense; expected true or false")
    elif isinstance(limit, bool) or not isinstance(limit, int | float) or not clause.low <= limit <= clause.high:
        raise ExperimentError(
            f"{name} = {limit!r} makes no sense; expected a number from {clause.low:g} to {clause.high:g}"
            " (accuracies are shares, 0.8 is 80 %)"
        )


def judge(contract: Contract, runs: Sequence[History], against: Sequence[History] = ()) -> list[Verdict]:
    """Every clause for every experiment among the runs (its seeds taken together); `against` are
    further runs of `local`, beside those among the runs. Runs are judged by the measure that the contract says, else
    by the one that they say themselves."""
    limits = {name: limit for name, limit in contract.items() if not isinstance(limit, str)}
    runs = judged_by(runs, str(contract["measure"]) if "measure" in contract else None)
    _check_direction(limits, runs[0].measure)
    if runs[0].measure == ACCURACY:
        return _all_judged(limits, runs, against)
    by_accuracy = _all_judged(limits, judged_by(runs, ACCURACY.name), against)
    by_measure = _all_judged(limits, runs, against)
    pairs = zip(by_accuracy, by_measure, strict=True)
    return [ours if CLAUSES[ours.clause].by_measure else plain for plain, ours in pairs]


def _check_direction(limits: dict[str, float | bool], measure: Measure) -> None:
    wrong, right = ("min_cluster", "max_cluster") if measure.lower_is_better else ("max_cluster", "min_cluster")
    if wrong in limits:
        better = "less" if measure.lower_is_better else "more"
        raise ExperimentError(
            f"the contract has {wrong}, but runs are judged by {measure.name}, of which {better} is better; use {right}"
        )


def _all_judged(
    contract: dict[str, float | bool], runs: Sequence[History], against: Sequence[History]
) -> list[Verdict]:
    groups = grouped(runs)
    local = [*against, *(run for run in runs if run.algorithm == "local")]
    others = any(run.algorithm != "local" for run in runs)
    verdicts = []
    for label, group in zip(labels(groups), groups, strict=True):
        estimated = estimates(group, None, local)
        name = ", ".join(value if key == "algorithm" else f"{key} = {value}" for key, value in label.items())
        name += "" if group[0].attack is None else f" ({group[0].attack})"
        oracle = any(run.tested_by_oracle for run in group)
        itself = group[0].algorithm == "local" and others  # what those are measured against
        clauses = {key: limit for key, limit in contract.items() if not (itself and key == "min_gain_over_local")}
        for clause, limit in clauses.items():
            verdict = _of_measure(_judged(name, clause, limit, estimated, oracle), group[0].measure)
            if clause == "min_gain_over_local" and verdict.outcome != "not judged":
                verdict = replace(verdict, reason=_other_effort(group, local))
            verdicts.append(verdict)
    return verdicts


def _of_measure(verdict: Verdict, measure: Measure) -> Verdict:
    """A verdict on runs that are judged by the measure, which they may not have."""
    if verdict.outcome != "not judged" or measure == ACCURACY:
        return replace(verdict, measure=measure)
    lacking = f"or there is no {measure.word}, as in runs of older versions"
    return replace(verdict, measure=measure, reason=f"{verdict.reason}; {lacking}")


def _other_effort(group: Sequence[History], local: Sequence[History]) -> str:
    """In words, where training alone had another effort than the runs it is compared with."""
    pairs = [(run.point, other.point) for run in group if (other := alone(run, local)) is not None]
    differences = {
        f"{key} = {theirs.get(key)} instead of {ours.get(key)}"
        for ours, theirs in pairs
        for key in ("training.rounds", "training.steps", "training.batch")
        if ours.get(key) != theirs.get(key)
    }
    return f"mind that 'local' was trained with {', '.join(sorted(differences))}" if differences else ""


def _judged(experiment: str, name: str, limit: float | bool, estimated: dict[str, Estimate], oracle: bool) -> Verdict:
    clause = CLAUSES[name]
    if oracle and clause.bound != "must":
        return Verdict(experiment, name, limit, "not judged", reason=ORACLE_NOTE)
    estimate = estimated.get(clause.number)
    if estimate is None or estimate.mean is None:
        return Verdict(experiment, name, limit, "not judged", reason=_missing(clause))
    if clause.bound == "must":
        kept = all(estimate.known)
        yes, count = sum(map(bool, estimate.known)), len(estimate.points)
        how = f"true in {yes} of {count} run{'s' if count > 1 else ''}"
        return Verdict(experiment, name, limit, "kept" if kept else "broken", estimate, how)
    spare = estimate.mean - limit if clause.bound == "min" else limit - estimate.mean
    kept = spare >= -ROUNDING
    return Verdict(experiment, name, limit, "kept" if kept else "broken", estimate)


def _missing(clause: Clause) -> str:
    if clause.number == "worst_gain":
        return "it needs runs of 'local' with the same data, model and seeds; name them as well"
    if clause.bound == "must":
        return "the algorithm has no heads to choose from, or the run does not know its clusters"
    if clause.number == "eo":
        return "the run does not know its clusters, has only one, or they were not tested on classes that they share"
    return "the run does not know its clusters, or has only one"


def exit_code(verdicts: Sequence[Verdict]) -> int:
    """1 if a clause is broken, else 2 if one could not be judged, else 0."""
    outcomes = {verdict.outcome for verdict in verdicts}
    return 1 if "broken" in outcomes else 0 if outcomes == {"kept"} else 2


def to_junit(verdicts: Sequence[Verdict]) -> bytes:
    """The verdicts as JUnit XML, one test case per experiment and clause."""
    counts = {kind: str(sum(v.outcome == kind for v in verdicts)) for kind in ("broken", "not judged")}
    totals = {"tests": str(len(verdicts)), "failures": counts["broken"], "errors": counts["not judged"]}
    suite = ET.Element("testsuite", {"name": "facade check", **totals})
    for verdict in verdicts:
        case = ET.SubElement(suite, "testcase", classname=verdict.experiment, name=verdict.clause)
        if verdict.outcome == "broken":
            ET.SubElement(case, "failure", message=verdict.sentence)
        elif verdict.outcome == "not judged":
            ET.SubElement(case, "error", message=verdict.sentence)
        else:
            ET.SubElement(case, "system-out").text = verdict.sentence
    ET.indent(suite)
    return bytes(ET.tostring(suite, encoding="utf-8", xml_declaration=True)) + b"\n"
