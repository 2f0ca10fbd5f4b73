"""The fairness gate: clauses that runs must keep, judged from their recorded confusion matrices and measures."""

from __future__ import annotations

import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from facade.analysis.experiment_names import labels
from facade.analysis.measures import ACCURACY, MEASURES, Measure
from facade.analysis.sites import Sites, site_numbers, sites_of
from facade.analysis.statistics import ROUNDING, Estimate, alone, estimates
from facade.analysis.table import ORACLE_NOTE, grouped
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
    """Limits that make sense, of a measure that is never above 1."""
    by_measure: bool = False
    """Whether it is about what the runs are judged by; else it is about accuracies or heads in any case."""
    about: Literal["nodes", "clusters", "sites"] = "nodes"
    """Whom it is about: nodes seed by seed, clusters, which must be known, or sites by their means over seeds."""


def _of_sites(bound: Bound, number: str, says: str, low: float = 0.0) -> Clause:
    return Clause(bound, number, f"{says}, by means over seeds", low, by_measure=True, about="sites")


def _of_clusters(bound: Bound, number: str, says: str, high: float = 1.0, by_measure: bool = False) -> Clause:
    return Clause(bound, number, says, high=high, by_measure=by_measure, about="clusters")


CLAUSES: dict[str, Clause] = {
    "min_cluster_accuracy": _of_clusters("min", "worst_cluster", "final accuracy of the worst cluster"),
    "min_cluster": _of_clusters(
        "min", "worst_cluster", "measure of the worst cluster, if more is better", by_measure=True
    ),
    "max_cluster": _of_clusters(
        "max", "worst_cluster", "measure of the worst cluster, if less is better", by_measure=True
    ),
    "max_gap": _of_clusters("max", "gap", "largest difference between the clusters' final measures", by_measure=True),
    "max_equalized_odds": _of_clusters("max", "eo", "equalized odds of the final models", high=2.0),
    "min_fair_accuracy": _of_clusters("min", "fair_accuracy", "final fair accuracy"),
    "min_gain_over_local": Clause(
        "min", "worst_gain", "what the worst-off node gains over training alone", low=-1.0, by_measure=True
    ),
    "must_separate": _of_clusters("must", "separated", "no head serves two clusters, in any seed"),
    "must_settle": _of_clusters("must", "settled", "every cluster has one head of its own, in every seed"),
    "min_site": _of_sites("min", "worst_site", "measure of the worst site, if more is better"),
    "max_site": _of_sites("max", "worst_site", "measure of the worst site, if less is better"),
    "min_gain": _of_sites(
        "min", "worst_gain_over_local", "what the site that gains least gains over training alone", low=-1.0
    ),
    "max_gap_between_sites": _of_sites("max", "gap_between_sites", "difference between the best and the worst site"),
}
"""Clauses about sites need no knowledge of clusters."""


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
            _check(name, limit, None if measure is None else MEASURES[measure])
    clauses = {name: limit for name, limit in written.items() if limit is not False}
    if not clauses.keys() - {"measure"}:
        raise ExperimentError(f"contract {path} has no clause; known: {', '.join(CLAUSES)}")
    return clauses


def _check(name: str, limit: Any, measure: Measure | None) -> None:
    """ExperimentError for a clause that there is not, or a limit that its number never has. measure None: that depends
    on the runs."""
    if name not in CLAUSES:
        raise unknown("clause", name, CLAUSES)
    clause, wrong = CLAUSES[name], f"{name} = {limit!r} makes no sense"
    if clause.bound == "must":
        if not isinstance(limit, bool):
            raise ExperimentError(f"{wrong}; expected true or false")
    elif isinstance(limit, bool) or not isinstance(limit, int | float):
        raise ExperimentError(f"{wrong}; expected a number")
    elif (of := measure if clause.by_measure else ACCURACY) is not None:
        of.check_limit(name, limit, clause.low, clause.high)


def judge(contract: Contract, runs: Sequence[History], against: Sequence[History] = ()) -> list[Verdict]:
    """Every clause for every experiment among the runs (its seeds taken together); `against` are
    further runs of `local`, beside those among the runs. Runs are judged by the measure that the contract says, else
    by the one that they say themselves."""
    limits = {name: limit for name, limit in contract.items() if not isinstance(limit, str)}
    runs = judged_by(runs, str(contract["measure"]) if "measure" in contract else None)
    for name, limit in limits.items():
        _check(name, limit, runs[0].measure)
    _refuse_clusters(limits, runs)
    _check_direction(limits, runs[0].measure)
    if runs[0].measure == ACCURACY:
        return _all_judged(limits, runs, against)
    by_accuracy = _all_judged(limits, judged_by(runs, ACCURACY.name), against)
    by_measure = _all_judged(limits, runs, against)
    pairs = zip(by_accuracy, by_measure, strict=True)
    return [ours if CLAUSES[ours.clause].by_measure else plain for plain, ours in pairs]


def _check_direction(limits: dict[str, float | bool], measure: Measure) -> None:
    """ExperimentError for a bound on the wrong side of what counts."""
    wrong_bound, bound = ("min", "max") if measure.lower_is_better else ("max", "min")
    for who in ("cluster", "site"):
        wrong, right = f"{wrong_bound}_{who}", f"{bound}_{who}"
        if wrong in limits:
            better = "less" if measure.lower_is_better else "more"
            raise ExperimentError(
                f"the contract has {wrong}, but runs are judged by {measure.name}, of which {better} is better; use"
                f" {right}"
            )


def _all_judged(
    contract: dict[str, float | bool], runs: Sequence[History], against: Sequence[History]
) -> list[Verdict]:
    groups = grouped(runs)
    local = [*against, *(run for run in runs if run.algorithm == "local")]
    others = any(run.algorithm != "local" for run in runs)
    of_sites = any(CLAUSES[name].about == "sites" for name in contract)
    verdicts = []
    for label, group in zip(labels(groups), groups, strict=True):
        sites = sites_of(group, local) if of_sites else None
        estimated = estimates(group, None, local) | ({} if sites is None else site_numbers(sites))
        name = ", ".join(value if key == "algorithm" else f"{key} = {value}" for key, value in label.items())
        name += "" if group[0].attack is None else f" ({group[0].attack})"
        oracle = any(run.tested_by_oracle for run in group)
        itself = group[0].algorithm == "local" and others  # what those are measured against
        clauses = {key: limit for key, limit in contract.items() if not (itself and key in _GAINS)}
        for clause, limit in clauses.items():
            verdict = _of_measure(_judged(name, clause, limit, estimated, oracle), group[0].measure)
            if verdict.outcome != "not judged":
                effort = _other_effort(group, local) if clause in _GAINS else ""
                whose = "" if sites is None else _whose(clause, sites)
                verdict = replace(verdict, reason="; ".join(part for part in (verdict.reason, whose, effort) if part))
            verdicts.append(verdict)
    return verdicts


def _of_measure(verdict: Verdict, measure: Measure) -> Verdict:
    """A verdict on runs that are judged by the measure, which they may not have."""
    if verdict.outcome != "not judged" or measure == ACCURACY:
        return replace(verdict, measure=measure)
    lacking = f"or there is no {measure.word}, as in runs of older versions"
    return replace(verdict, measure=measure, reason=f"{verdict.reason}; {lacking}")


_GAINS = ("min_gain_over_local", "min_gain")
"""Clauses that compare with runs of `local`."""


def _refuse_clusters(contract: dict[str, float | bool], runs: Sequence[History]) -> None:
    """ExperimentError for a clause about clusters where a run does not know them."""
    of_clusters = [name for name in contract if CLAUSES[name].about == "clusters"]
    unknowing = next((run for run in runs if run.cluster is None), None)
    if of_clusters and unknowing is not None:
        wrong = "min_site" if runs[0].measure.lower_is_better else "max_site"
        others = ", ".join(name for name, clause in CLAUSES.items() if clause.about == "sites" and name != wrong)
        raise ExperimentError(
            f"{of_clusters[0]} is about clusters, but {unknowing.path} does not know which sites are alike; use clauses"
            f" about sites: {others}"
        )


def _whose(clause: str, sites: Sites) -> str:
    """Which sites decided a clause about sites, in words."""
    if clause in ("min_site", "max_site"):
        return f"the worst site is {sites.name(sites.worst)}"
    if clause == "min_gain":
        return f"{sites.name(sites.least_gaining('local'))} gains least"
    if clause == "max_gap_between_sites":
        return f"the best is {sites.name(sites.best)}, the worst {sites.name(sites.worst)}"
    return ""


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
    if clause.number in ("worst_gain", "worst_gain_over_local"):
        return "it needs runs of 'local' with the same data, model and seeds; name them as well"
    if clause.about == "sites":
        return "no site has such a number with every seed"
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
