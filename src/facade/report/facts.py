"""What a page shows, as plain rows: computed from runs, before anything is drawn.

Runs with the same data and model make one comparison; in it, runs that differ only in their seed make
one subject. Rows hold numbers as they are drawn: accuracy in percent, traffic in megabytes. What is said of
accuracy here holds for whatever else runs are judged by (`evaluation.measure`).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from facade.analysis.experiment_names import experiment_names, labels
from facade.analysis.measures import Measure
from facade.analysis.node_values import mean_of_known, node_values
from facade.analysis.sites import Sites, site_numbers, sites_of
from facade.analysis.statistics import Estimate, alone, estimates, gains, judged, settlement
from facade.analysis.table import grouped
from facade.core.names import short
from facade.data.clusters import cluster_names
from facade.errors import RunDirectoryError
from facade.runs.history import Evaluation, History
from facade.runs.run_directory import RunDirectory

Rows = list[dict[str, Any]]

MOST_NODES = 64
"""Beyond this many nodes, pictures of single nodes become pictures of how many there are."""
SHOWN = {"fair_accuracy": 100.0, "all": None, "worst_cluster": None, "dp": 1.0, "eo": 1.0}
"""Numbers of an evaluation that are drawn over rounds, and their scale; None: that of the measure."""
_BINS = 24
_MOST_SHARES = 200


@dataclass(frozen=True)
class Subject:
    """One experiment, over its seeds."""

    label: str
    runs: list[History]
    others: list[History] = field(default_factory=list)
    """Runs to compare with, among them those of training alone and of EL over which gains are measured."""
    of_sites: bool = False
    """Whether its clusters are not known, so that sites count."""

    @property
    def algorithm(self) -> str:
        """The algorithm's name."""
        return self.runs[0].algorithm

    @functools.cached_property
    def estimates(self) -> dict[str, Estimate]:
        """Every number over the seeds; intervals of a single run take a second or more, and not every picture asks."""
        found = estimates(self.runs, local=self.others)
        return found if self.sites is None else found | site_numbers(self.sites)

    @property
    def served(self) -> Estimate:
        """What the worst site comes to where sites count, else the worst cluster; all nodes where that is not known."""
        name = "worst_site" if self.of_sites else "worst_cluster" if self.runs[0].clusters else "all"
        return self.estimates.get(name) or Estimate([None] * len(self.runs))

    @functools.cached_property
    def sites(self) -> Sites | None:
        """Its sites, where clusters are not known."""
        return sites_of(self.runs, self.others) if self.of_sites else None


@dataclass(frozen=True)
class Comparison:
    """Experiments on the same data with the same model."""

    title: str
    clusters: list[str]
    subjects: list[Subject]

    @property
    def runs(self) -> list[History]:
        """The runs of all subjects."""
        return [run for subject in self.subjects for run in subject.runs]

    @property
    def measure(self) -> Measure:
        """What they are judged by."""
        return self.runs[0].measure

    @property
    def of_sites(self) -> bool:
        """Whether no clusters are known, so that it speaks of sites."""
        return self.subjects[0].of_sites

    def clusters_of(self, run: History) -> list[str]:
        """[n] the name of every node's cluster."""
        if run.cluster is None:
            return self.clusters[:1] * len(run.test_of)
        return [self.clusters[c] for c in run.cluster]


def comparisons(runs: Sequence[History]) -> list[Comparison]:
    """Runs, sorted into comparisons in the order of their first runs."""
    settings: dict[str, list[History]] = {}
    for run in runs:
        settings.setdefault(str([item for item in run.point.items() if _is_setting(item[0])]), []).append(run)
    titles = _titles(list(settings.values()))
    return [_comparison(title, group) for title, group in zip(titles, settings.values(), strict=True)]


def _is_setting(key: str) -> bool:
    return key.startswith(("data.", "model."))


def _titles(settings: list[list[History]]) -> list[str]:
    """What each comparison is about; where two would be called alike, with all that differs."""
    plain = [_title(group) for group in settings]
    if len(set(plain)) == len(plain):
        return plain
    points = [{k: str(v) for k, v in group[0].point.items() if _is_setting(k)} for group in settings]
    differing = [key for key in points[0] if len({point.get(key) for point in points}) > 1]
    differences = [", ".join(f"{key} = {point.get(key, '-')}" for key in differing) for point in points]
    return [f"{title} ({more})" for title, more in zip(plain, differences, strict=True)]


def _title(group: list[History]) -> str:
    data, model = group[0].experiment["data"], short(group[0].experiment["model"]["name"])
    if any(run.clusters for run in group):
        return f"{data['source']} {data['clusters']}, skew {data['skew']}, model {model}"
    return f"{data['source']}, {len(group[0].data['images'])} sites, model {model}"


def _comparison(title: str, runs: list[History]) -> Comparison:
    groups = grouped(runs)
    clusters = max(run.clusters for run in runs)
    names = cluster_names([run.sizes for run in runs], clusters)
    named = zip(subject_labels(groups), groups, strict=True)
    subjects = [Subject(label, group, runs, of_sites=not clusters) for label, group in named]
    return Comparison(title, names or ["all sites"], subjects)


def subject_labels(groups: Sequence[Sequence[History]]) -> list[str]:
    """What experiments are called: the algorithm, and what sets experiments with the same one apart."""
    return experiment_names(labels(groups))


# Over rounds


def over_rounds(comparison: Comparison) -> Rows:
    """Per subject, round, number: mean, lowest and highest over seeds, and the megabytes heard by then."""
    rows: Rows = []
    for subject in comparison.subjects:
        each = [dict(_moments(run, comparison)) for run in subject.runs]
        for at in [at for at in each[0] if all(at in other for other in each)]:
            final, round = at
            for name in each[0][at]:
                values = [other[at][name] for other in each if name in other[at]]
                rows.append(
                    {"who": subject.label, "round": round, "what": name, "final": final}
                    | {"mean": tidy(np.mean(values)), "low": tidy(min(values)), "high": tidy(max(values))}
                    | {"mb": tidy(np.mean([_heard(run, round) for run in subject.runs]))}
                )
    return rows


def _moments(run: History, comparison: Comparison) -> Iterator[tuple[tuple[bool, int], dict[str, float]]]:
    for evaluation, final in [*((e, False) for e in run.evaluations), (run.final, True)]:
        yield (final, evaluation.round), _numbers(evaluation, run, comparison)


def _numbers(evaluation: Evaluation, run: History, comparison: Comparison) -> dict[str, float]:
    numbers, scale = judged(evaluation, run.cluster, run.measure), run.measure.scale
    if comparison.of_sites:
        return {name: scale * numbers[name] for name in ("all", "worst_node") if name in numbers}
    drawn = {name: (own or scale) * numbers[name] for name, own in SHOWN.items() if name in numbers}
    of = ["all"] if run.cluster is None else [f"cluster_{c}" for c in range(len(comparison.clusters))]
    named = zip(comparison.clusters, of, strict=False)  # a run among others may not know the clusters
    return drawn | {cluster: scale * numbers[name] for cluster, name in named if name in numbers}


def _heard(run: History, round: int) -> float:
    return float(run.heard[run.rounds <= round].sum()) / 1e6


def tidy(value: Any) -> float:
    """Four digits behind the point are more than a screen shows."""
    return round(float(value), 4)


# Heads


def head_shares(comparison: Comparison, run: History, rounds: int | None = None) -> Rows:
    """Per round, cluster and head, the share of the cluster's nodes that chose it, in the first `rounds` of the
    run (None: all). Of many rounds, every other or fewer and the last, so that pages stay small."""
    heads = settlement(run)
    if heads is None:
        return []
    shares = heads.shares[:rounds]
    step = -(-len(shares) // _MOST_SHARES)
    return [
        {"round": int(run.rounds[r]), "cluster": comparison.clusters[c], "head": f"head {j}", "share": tidy(share)}
        for r in sorted({*range(0, len(shares), step), len(shares) - 1})
        for c, row in enumerate(shares[r])
        for j, share in enumerate(row)
    ]


def head_strips(comparison: Comparison, run: History) -> Rows:
    """Per node, stretches of rounds with the same choice; nothing for more nodes than can be seen."""
    if run.choice is None or run.choice.shape[1] > MOST_NODES:
        return []
    cluster, rows = comparison.clusters_of(run), []
    for place, choices in enumerate(run.choice.T):
        chosen, node = zip(choices.tolist(), run.rounds.tolist(), strict=True), int(run.nodes[place])
        for head, stretch in itertools.groupby(chosen, lambda at: at[0]):
            played = [round for _, round in stretch]
            stretched = {"from": played[0], "to": played[-1] + 1}
            whose = {"node": node, "site": run.sites[place], "cluster": cluster[place]}
            rows.append(whose | {"head": f"head {head}"} | stretched)
    return rows


# Who gains


def node_gains(comparison: Comparison) -> Rows:
    """Per subject and node, percentage points gained over training alone, the mean over seeds."""
    local, rows = comparison.runs, []
    for subject in comparison.subjects:
        each = [gains(run, other) for run in subject.runs if (other := alone(run, local)) is not None]
        if len(each) < len(subject.runs) or not each:
            continue
        first = subject.runs[0]
        nodes = zip(first.nodes.tolist(), first.sites, comparison.clusters_of(first), np.mean(each, 0), strict=True)
        scale = comparison.measure.scale
        for node, site, cluster, gain in nodes:
            if not np.isnan(gain):
                whose = {"who": subject.label, "node": node, "site": site, "cluster": cluster}
                rows.append(whose | {"gain": tidy(scale * gain)})
    return rows


def binned(rows: Rows) -> Rows:
    """Gains of many nodes: per subject and cluster, how many nodes lie where."""
    if not rows:
        return []
    gained = np.array([row["gain"] for row in rows])
    edges = np.linspace(gained.min(), gained.max() + 1e-9, _BINS + 1)
    counts: dict[tuple[str, str, int], int] = {}
    for row in rows:
        key = row["who"], row["cluster"], int(np.searchsorted(edges, row["gain"], "right")) - 1
        counts[key] = counts.get(key, 0) + 1
    return [
        {"who": who, "cluster": cluster, "gain": tidy((edges[b] + edges[b + 1]) / 2), "nodes": count}
        for (who, cluster, b), count in counts.items()
    ]


# Price


def prices(comparison: Comparison) -> Rows:
    """Per subject: accuracy of the worst-served cluster or site, megabytes per node and seconds; `front` marks
    those that no other beats in all three."""
    rows: Rows = []
    for subject in comparison.subjects:
        worst = subject.served.mean
        if worst is None:
            continue
        seconds = [taken for run in subject.runs if (taken := _seconds(run)) is not None]
        price = {
            "mb": tidy((_mean(subject, "bytes_per_node") or 0) / 1e6),
            "worst": tidy(comparison.measure.scale * worst),
        }
        rows.append({"who": subject.label} | price | {"seconds": tidy(np.mean(seconds)) if seconds else None})
    for row in rows:
        row["front"] = not any(_beats(other, row, comparison.measure.better) for other in rows)
    return rows


def _beats(one: dict[str, Any], other: dict[str, Any], better: int) -> bool:
    """At least as good in everything known of both, and better in something."""
    pairs = [(better * one["worst"], better * other["worst"]), (-one["mb"], -other["mb"])]
    if one["seconds"] is not None and other["seconds"] is not None:
        pairs.append((-one["seconds"], -other["seconds"]))
    return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)


def _mean(subject: Subject, name: str) -> float | None:
    return subject.estimates[name].mean if name in subject.estimates else None


def _seconds(run: History) -> float | None:
    try:
        return float(RunDirectory(run.path).read("result.json")["seconds"])
    except (RunDirectoryError, KeyError):  # rows alone are enough for all the rest
        return None


def accuracy_alone(comparison: Comparison) -> float | None:
    """Accuracy over all nodes, in percent, of training alone, with each seed at its best (such as of several
    learning rates); None if it is not among the runs."""
    seeds: dict[int, list[float]] = {}
    for run in comparison.runs:
        reached = mean_of_known(node_values(run.final, run.measure))
        if run.algorithm == "local" and not np.isnan(reached):
            seeds.setdefault(run.seed, []).append(reached)
    best = [comparison.measure.best(values) for values in seeds.values()]
    return comparison.measure.scale * float(np.mean(best)) if best else None
