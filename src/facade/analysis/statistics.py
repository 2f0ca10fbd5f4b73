"""How good, how fair, at what price, and how sure: the numbers of runs that differ only in their seed.

Numbers have names; those of the final evaluation are called as in `facade list metrics`, with
`cluster_0`, `cluster_1`, ... for the clusters, `worst_cluster` for the lowest of them and `gap` for the
largest difference. They are accuracies, or what else the runs are judged by (`evaluation.measure`); worst is
then the highest where less is better, and a gain is positive where a node is better off than alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from facade.analysis import metrics
from facade.analysis.measures import ACCURACY, MEASURES, Measure, values
from facade.analysis.metrics import Counts, Floats
from facade.analysis.node_values import (
    is_judged,
    mean_of_known,
    moved_values,
    node_values,
    of_nodes,
    without_judged,
)
from facade.analysis.resampling import RESAMPLES, likely_accuracies, resampled
from facade.core.plan import OTHER_PRIOR
from facade.runs.federation_facts import differing_facts
from facade.runs.history import Evaluation, History
from facade.runs.result import measure

LEVEL = 0.95
SEEDS = "seeds"
TEST_NOISE = "test-set noise only"
ROUNDING = 1e-9
"""How far below a limit a mean may be by rounding alone."""

Numbers = dict[str, float]


class Interval(NamedTuple):
    """A range for the true value, and what its width accounts for."""

    low: float
    high: float
    accounts_for: str
    """SEEDS, or TEST_NOISE for a single run."""


@dataclass(frozen=True)
class Estimate:
    """One number over the seeds of an experiment."""

    points: list[float | None]
    """One value per seed, none left out; None: that run has no such number (a target not reached)."""
    interval: Interval | None = None

    @property
    def known(self) -> list[float]:
        """The points that are numbers."""
        return [point for point in self.points if point is not None]

    @property
    def mean(self) -> float | None:
        """Mean over seeds; None unless every seed has the number."""
        return float(np.mean(self.known)) if self.known and len(self.known) == len(self.points) else None

    @property
    def std(self) -> float | None:
        """Population standard deviation over seeds, as the paper prints it."""
        return None if self.mean is None else float(np.std(self.known))


def estimates(
    runs: Sequence[History], target: float | None = None, local: Sequence[History] = ()
) -> dict[str, Estimate]:
    """Every number of an experiment, from its runs with different seeds. `target` is an accuracy,
    or a value of what else they are judged by, whose price is wanted; `local` are runs of training alone to compare
    with."""
    each = [numbers(run, target, local) for run in runs]
    names = list(dict.fromkeys(name for numbers_of_run in each for name in numbers_of_run))
    intervals = _noise_intervals(runs[0], local) if len(runs) == 1 else {}
    estimated = {}
    for name in names:
        points = [numbers_of_run.get(name) for numbers_of_run in each]
        interval = intervals[name] if name in intervals else student_interval(points)
        estimated[name] = Estimate(points, None if interval is None else possible(name, interval, runs[0].measure))
    if len(runs) > 1 and "fair_accuracy" in estimated and runs[0].measure == ACCURACY:
        estimated["fair_accuracy_of_means"] = Estimate([_fair_of_means(estimated)])
    return estimated


def _fair_of_means(estimated: dict[str, Estimate]) -> float:
    """Fair accuracy as the paper computed it: from accuracies that are means over seeds."""
    means = [estimate.mean for name, estimate in estimated.items() if name.startswith("cluster_")]
    return metrics.fair_accuracy(np.array(means, dtype=np.float64))


def numbers(run: History, target: float | None = None, local: Sequence[History] = ()) -> Numbers:
    """The numbers of one run."""
    named = judged(run.final, run.cluster, run.measure)
    every = [*(judged(evaluation, run.cluster, run.measure) for evaluation in run.evaluations), named]
    for name in [name for name in named if name in ("fair_accuracy", "all") or name.startswith("cluster_")]:
        points = [numbers[name] for numbers in every if name in numbers]
        lowest = run.measure.lower_is_better and name != "fair_accuracy"
        named[f"{'lowest' if lowest else 'highest'}_{name}"] = min(points) if lowest else max(points)
    named |= {"bytes_per_node": float(run.heard.sum()), "bytes_final": run.heard_finally}
    named |= _under_other_prior(run)
    if target is not None and (reached := cost_to(run, target)) is not None:
        named |= {"rounds_to_target": float(reached.rounds), "bytes_to_target": reached.bytes}
    if (other := alone(run, local)) is not None:
        gain = gains(run, other)
        gain = gain[~np.isnan(gain)]
        named |= {"mean_gain": float(gain.mean()), "worst_gain": float(gain.min())} if len(gain) else {}
    if (heads := settlement(run)) is not None:
        named |= {"unused_heads": float(len(heads.unused)), "shared_heads": float(len(heads.shared))}
        if heads.settling_round is not None:
            named["settling_round"] = float(heads.settling_round)
    return named


def _under_other_prior(run: History) -> Numbers:
    """Accuracies with the prior that does not count, its name in front: `flat_all`, `own_cluster_0`."""
    if run.final.prior is None or run.final.under_other_prior is None:
        return {}
    measured = _by_name(measure(run.final.under_other_prior, run.cluster))
    accuracies = {name: share for name, share in measured.items() if name == "all" or name.startswith("cluster_")}
    return {f"{OTHER_PRIOR[run.final.prior]}_{name}": share for name, share in accuracies.items()}


def tested(evaluation: Evaluation, cluster: Counts | None) -> Numbers:
    """The numbers of one evaluation on test data, by accuracy."""
    return _by_name(measure(evaluation.confusion, cluster, evaluation.choice))


def judged(evaluation: Evaluation, cluster: Counts | None, by: Measure) -> Numbers:
    """The same by any measure."""
    named = tested(evaluation, cluster)
    if by == ACCURACY:
        return named
    return without_judged(named) | of_nodes(node_values(evaluation, by), cluster, evaluation.choice, by)


def validated(evaluation: Evaluation, cluster: Counts | None) -> Numbers:
    """The same on validation data, by accuracy, the mean `loss`, and the means of other measures by their names;
    nothing where there are none."""
    if evaluation.validation is None or evaluation.validation_loss is None:
        return {}
    named = _by_name(measure(evaluation.validation, cluster)) | {"loss": float(evaluation.validation_loss.mean())}
    for name, other in MEASURES.items():
        mean = mean_of_known(values(other, evaluation.validation, evaluation.validation_beside))
        named |= {} if other == ACCURACY or math.isnan(mean) else {name: mean}
    return named


def _by_name(measured: dict[str, object]) -> Numbers:
    clusters = measured.get("clusters")
    named: Numbers = {}
    if isinstance(clusters, list):
        named = {f"cluster_{c}": share for c, share in enumerate(clusters)}
        named["worst_cluster"] = min(clusters)
        if len(clusters) > 1:
            named["gap"] = max(clusters) - min(clusters)
    return named | {name: float(v) for name, v in measured.items() if isinstance(v, int | float)}


# How sure


def possible(name: str, interval: Interval, by: Measure = ACCURACY) -> Interval:
    """The part of an interval in which the number can lie."""
    unlimited = name in ("dp_sum", "eo_sum", "loss") or name.startswith(
        ("bytes", "rounds", "settling", "unused", "shared")
    )
    if not by.limited:
        unlimited = unlimited or is_judged(name) or name.startswith("lowest_")
    low = 0.0 if not name.endswith("_gain") else -math.inf if unlimited else -1.0
    high = math.inf if unlimited else 2.0 if name == "eo" else 1.0
    return interval._replace(low=max(interval.low, low), high=min(interval.high, high))


def student_interval(points: Sequence[float | None]) -> Interval | None:
    """Student's t interval for the mean; None for fewer than two points, or where one is missing."""
    from scipy.special import stdtrit

    values = [point for point in points if point is not None]
    if len(values) < max(2, len(points)):
        return None
    reach = float(stdtrit(len(values) - 1, (1 + LEVEL) / 2)) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    middle = float(np.mean(values))
    return Interval(middle - reach, middle + reach, SEEDS)


def noise_interval(value: float, draws: Floats) -> Interval:
    """The spread of the draws, put around the observed value. (Noise makes gaps between clusters larger on average;
    moving the draws back to the value takes out what drawing again adds to it.)"""
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]) - draws.mean() + value
    return Interval(float(low), float(high), TEST_NOISE)


def spread(value: float, draws: Floats) -> Interval:
    """The range of draws of what a value may truly be, which the value itself belongs to."""
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(min(float(low), value), max(float(high), value), TEST_NOISE)


def _noise_intervals(run: History, local: Sequence[History]) -> dict[str, Interval]:
    """Intervals for the final evaluation's numbers, from the draws of `_noise`. What no draw changes is no certainty:
    accuracies, where all answers were right or wrong, get the interval of such counts, other numbers none."""
    noise, found = _noise(run, local), numbers(run, local=local)
    fixed = {name for name, draws in noise.items() if not np.ptp(draws)}
    intervals = {name: noise_interval(found[name], noise[name]) for name in noise if name not in fixed}
    if fixed and run.measure == ACCURACY:
        seen = of_nodes(metrics.accuracy(run.final.confusion), run.cluster, None, ACCURACY)
        likely = likely_accuracies(run.final.confusion, run.test_of)
        draws = [of_nodes(drawn, run.cluster, None, ACCURACY) for drawn in likely]
        for name in fixed & seen.keys():
            intervals[name] = spread(seen[name], np.array([draw[name] for draw in draws]))
    return intervals


def _noise(run: History, local: Sequence[History]) -> dict[str, Floats]:
    """[RESAMPLES] draws of the final evaluation's numbers."""
    if run.measure == ACCURACY:
        return _accuracy_noise(run, local)
    return without_judged(_accuracy_noise(run, [])) | _measure_noise(run, local)


def _accuracy_noise(run: History, local: Sequence[History]) -> dict[str, Floats]:
    shifts, draws = [], []
    for confusion in resampled(run.final.confusion, run.test_of):
        draws.append(_by_name(measure(confusion, run.cluster)))
        shifts.append(metrics.accuracy(confusion))
    always = set.intersection(*(set(draw) for draw in draws))  # a rare class may be missing from a draw
    noise = {name: np.array([draw[name] for draw in draws]) for name in draws[0] if name in always}
    nodes = metrics.accuracy(run.final.confusion)
    moved = np.array(shifts) - np.mean(shifts, 0)
    noise["worst_node"] = (nodes + moved).min(1)
    if (other := alone(run, local)) is not None:
        same = other.final.confusion[_same_nodes(other, run)]
        theirs = np.array([metrics.accuracy(c) for c in resampled(same, run.test_of, "local")])
        gain = gains(run, other) + moved - (theirs - theirs.mean(0))
        noise |= {"mean_gain": gain.mean(1), "worst_gain": gain.min(1)}
    return noise


def _measure_noise(run: History, local: Sequence[History]) -> dict[str, Floats]:
    """The same of a measure that is no accuracy, from the variances of nodes; nothing of a number for which one is not
    known."""
    by, value = run.measure, node_values(run.final, run.measure)
    drawn = moved_values(run.final, by, run.test_of, RESAMPLES, "measure")
    unsure = np.isnan(drawn[0]) & ~np.isnan(value)
    draws = [of_nodes(values, run.cluster, None, by) for values in drawn]
    noise = {name: np.array([draw[name] for draw in draws]) for name in draws[0]}
    if unsure.any():
        of = set() if run.cluster is None else set(run.cluster.tolist()) - set(run.cluster[unsure].tolist())
        return {name: noise[name] for name in (f"cluster_{c}" for c in of) if name in noise}
    known = ~np.isnan(value)
    shifts = drawn - drawn.mean(0)
    if known.any():
        noise["worst_node"] = by.better * (by.better * (value + shifts)[:, known]).min(1)
    if (other := alone(run, local)) is not None:
        nodes = _same_nodes(other, run)
        theirs = moved_values(other.final, by, other.test_of, RESAMPLES, "measure-local")[:, nodes]
        gain = gains(run, other) + by.better * (shifts - (theirs - theirs.mean(0)))
        gain = gain[:, ~np.isnan(gains(run, other))]
        noise |= {"mean_gain": gain.mean(1), "worst_gain": gain.min(1)} if np.isfinite(gain).all() and gain.size else {}
    return noise


# Price, gain, heads


class Cost(NamedTuple):
    """What it took to reach a target."""

    rounds: int
    bytes: float
    """Payload bytes that a node heard, the mean over nodes."""


def cost_to(run: History, target: float) -> Cost | None:
    """Rounds and bytes at the first evaluation whose accuracy (or what else the run is judged by) over all nodes
    reaches the target; the final exchange counts if only the models after it do."""

    def reached(evaluation: Evaluation) -> bool:
        mean = mean_of_known(node_values(evaluation, run.measure))
        return bool(run.measure.better * (mean - target) >= -ROUNDING)

    for evaluation in run.evaluations:
        if reached(evaluation):
            return Cost(evaluation.round, float(run.heard[run.rounds <= evaluation.round].sum()))
    if reached(run.final):
        return Cost(run.final.round, float(run.heard.sum()) + run.heard_finally)
    return None


def alone(run: History, local: Sequence[History]) -> History | None:
    """The run of `local` with the run's data, model and seed, if it is among those given."""
    return counterpart(run, local, "local")


def counterpart(run: History, others: Sequence[History], algorithm: str) -> History | None:
    """The run of another algorithm with the run's data, model and seed, if it is among those given; of several, such as
    one per learning rate, the best: nobody gains by being compared with a badly trained model."""
    if run.algorithm == algorithm:
        return None
    wanted = [item for item in run.point.items() if item[0].startswith(("data.", "model.", "evaluation.images"))]
    same = [
        other
        for other in others
        if other.algorithm == algorithm
        and other.seed == run.seed
        and all(other.point.get(k) == v for k, v in wanted)
        and not differing_facts(other.data, run.data)
        and np.isin(run.nodes, other.nodes).all()
    ]

    def reached(other: History) -> float:
        mean = mean_of_known(node_values(other.final, run.measure))
        return -math.inf if math.isnan(mean) else run.measure.better * mean

    return max(same, key=reached, default=None)


def gains(run: History, other: History) -> Floats:
    """[n] how much better every node's final accuracy (or what else the run is judged by) is than in the other run, in
    which others may be honest; NaN where one of the two is not known."""
    theirs = node_values(other.final, run.measure)[_same_nodes(other, run)]
    return run.measure.better * (node_values(run.final, run.measure) - theirs)


def _same_nodes(other: History, run: History) -> Counts:
    """[n] the places, among the nodes of another run, of those of a run."""
    return np.searchsorted(other.nodes, run.nodes)


@dataclass(frozen=True)
class Settlement:
    """Who chose which head, and when that came to rest."""

    shares: Floats
    """[R, G, k] share of every head in each round and cluster; all nodes are one where clusters are not known."""
    settling_round: int | None
    """The first round from which every one of several clusters had a head of its own until the end."""
    unused: list[int]
    """Heads that nobody deploys in the end."""
    shared: list[int]
    """Heads that nodes of several clusters deploy in the end."""


def settlement(run: History) -> Settlement | None:
    """The choice of heads over the run; None for algorithms without heads."""
    if run.choice is None or run.final.choice is None:
        return None
    cluster = np.zeros_like(run.final.choice) if run.cluster is None else run.cluster
    one_hot = run.choice[:, :, None] == np.arange(run.heads)
    shares = np.stack([one_hot[:, cluster == c].mean(1) for c in range(int(cluster.max()) + 1)], axis=1)
    settled = [run.clusters > 1 and metrics.settled(choice, cluster) for choice in run.choice]
    rest = len(settled) - next((i for i, calm in enumerate(reversed(settled)) if not calm), len(settled))
    users = {j: set(cluster[run.final.choice == j].tolist()) for j in range(run.heads)}
    return Settlement(
        shares,
        int(run.rounds[rest]) if rest < len(settled) else None,
        [j for j, who in users.items() if not who],
        [j for j, who in users.items() if len(who) > 1],
    )


def settles(run: History) -> bool:
    """Whether every cluster has a head of its own in the end."""
    settled = settlement(run)
    return settled is not None and settled.settling_round is not None
