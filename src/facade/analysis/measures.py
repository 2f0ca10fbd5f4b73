"""The measures by which models can be judged: per node from what rows hold, and how sure the values are.

Accuracy and balanced accuracy follow from confusion matrices; the others are recorded beside them, and rows of older
versions do not have them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from facade.analysis import metrics
from facade.analysis.metrics import Counts, Floats
from facade.core.types import Row
from facade.errors import ExperimentError

_REACH = 1.959963984540054
"""Standard errors on each side of a value in a normal interval of 95 %."""


@dataclass(frozen=True)
class Measure:
    """One number per node that says how good its model is."""

    name: str
    """As `evaluation.measure` has it."""
    word: str
    """In a sentence, or on an axis."""
    heading: str
    """In a table."""
    says: str
    lower_is_better: bool = False
    percent: bool = False
    """Whether it is shown in percent."""
    limited: bool = True
    """Whether it is never above 1."""

    @property
    def scale(self) -> float:
        """What values are multiplied by where they are shown."""
        return 100.0 if self.percent else 1.0

    @property
    def digits(self) -> int:
        """Digits behind the point in a table."""
        return 2 if self.percent else 4

    @property
    def highest(self) -> float:
        """What it is never above."""
        return 1.0 if self.limited else math.inf

    @property
    def axis(self) -> str:
        """The title of an axis."""
        return f"{self.word}, %" if self.percent else self.word

    @property
    def better(self) -> int:
        """1 where more is better, -1 where less is."""
        return -1 if self.lower_is_better else 1

    def value(self, value: float) -> str:
        """A value in a sentence."""
        return f"{100 * value:.1f}\u00a0%" if self.percent else f"{value:.3f}"

    def difference(self, by: float) -> str:
        """A difference in a sentence, without its unit."""
        return f"{100 * by:.1f}" if self.percent else f"{by:.3f}"

    def series(self, values: Sequence[float | None]) -> str:
        """Values one after the other, "-" where there is none; which measure it is, unless it is accuracy."""
        each = " ".join("-" if value is None else self.difference(value) for value in values)
        word = "" if self.name == "accuracy" else f"{self.heading} "
        return f"{word}{each}{' %' if self.percent else ''}"

    def check_limit(self, name: str, limit: float, low: float = 0.0, high: float = 1.0) -> None:
        """ExperimentError for a limit that makes no sense. low, high: those that do, where it is never above 1."""
        if not self.limited:
            low, high = -math.inf if low < 0 else low, math.inf
        if not low <= limit <= high:
            values = f"from {low:g} to {high:g}" if self.limited else f"from {low:g} on"
            of = "accuracies are shares, 0.8 is 80 %" if self.percent else self.word
            raise ExperimentError(f"{name} = {limit!r} makes no sense; expected a number {values} ({of})")

    def worst(self, values: Sequence[float] | Floats) -> float:
        """The worst of some values."""
        return float(max(values) if self.lower_is_better else min(values))

    def best(self, values: Sequence[float] | Floats) -> float:
        """The best of them."""
        return float(min(values) if self.lower_is_better else max(values))


ACCURACY = Measure("accuracy", "accuracy", "acc.", "share of right answers", percent=True)
MEASURES: dict[str, Measure] = {
    measure.name: measure
    for measure in (
        ACCURACY,
        Measure(
            "balanced-accuracy",
            "balanced accuracy",
            "bal. acc.",
            "mean over the classes that were tested of the share of right answers",
            percent=True,
        ),
        Measure(
            "auc",
            "AUC",
            "AUC",
            "area under the ROC curve, of each class against the rest; over nodes tested on all classes",
        ),
        Measure(
            "log-loss",
            "log loss",
            "log loss",
            "mean negative logarithm of the true class's probability; less is better",
            lower_is_better=True,
            limited=False,
        ),
        Measure(
            "calibration-error",
            "calibration error",
            "cal. err.",
            "mean distance between confidence and share of right answers, in 15 bins; less is better",
            lower_is_better=True,
        ),
    )
}
_COLUMNS = {"auc": 0, "log-loss": 2, "calibration-error": 4}


def recorded(rows: Sequence[Row], name: str = "measures") -> Floats | None:
    """[n, 5] of the rows of an evaluation: AUC, its variance, log loss, the variance of that, calibration error; NaN
    for what there is not. None: an older version wrote the rows, or there are no validation data."""
    if not all(name in row for row in rows):
        return None
    each = [row[name] for row in rows]
    flat = [[*(one["auc"] or (None, None)), *one["log_loss"], one["calibration_error"]] for one in each]
    return np.array(flat, dtype=np.float64)


def values(measure: Measure, confusion: Counts, beside: Floats | None) -> Floats:
    """[n] from confusion matrices [n, C, C] and what was recorded beside them; NaN where it is not known."""
    if measure.name == "accuracy":
        return metrics.accuracy(confusion)
    if measure.name == "balanced-accuracy":
        return metrics.balanced_accuracy(confusion)
    return np.full(len(confusion), np.nan) if beside is None else beside[:, _COLUMNS[measure.name]]


def variances(measure: Measure, confusion: Counts, beside: Floats | None) -> Floats:
    """[n] of these values over other test sets; NaN where nobody knows, as of calibration errors."""
    if measure.name == "accuracy":
        share = metrics.accuracy(confusion)
        return np.asarray(share * (1 - share) / confusion.sum((1, 2)))
    if measure.name == "balanced-accuracy":
        counts = confusion.sum(2)
        share = np.diagonal(confusion, axis1=1, axis2=2) / np.maximum(counts, 1)
        each = share * (1 - share) / np.maximum(counts, 1)
        return np.asarray(each.sum(1) / (counts > 0).sum(1) ** 2)
    if beside is None or measure.name == "calibration-error":
        return np.full(len(confusion), np.nan)
    return beside[:, _COLUMNS[measure.name] + 1]


def mean_over(value: Floats, variance: Floats, test_of: Counts) -> tuple[float, float]:
    """The mean over nodes and its variance: values on one test set are taken to rise and fall together. NaN of none."""
    if not len(value):
        return math.nan, math.nan
    errors = [np.sqrt(variance[test_of == test]).sum() for test in np.unique(test_of)]
    return float(value.mean()), float(sum(error**2 for error in errors) / len(value) ** 2)


def interval(measure: Measure, value: float, variance: float) -> tuple[float, float] | None:
    """95 % for one value: normal on the logit scale for what lies between 0 and 1, else normal and not below 0. None
    where the variance is not known, and at 0 and 1 and where it is 0 (a model that always gives the same answer has a
    balanced accuracy of 1/2 on any test set of two classes, and no such variance is to pass for certainty)."""
    if math.isnan(value) or math.isnan(variance) or not variance:
        return None
    error = math.sqrt(variance)
    if not measure.limited:
        return max(0.0, value - _REACH * error), value + _REACH * error
    if not 0 < value < 1:
        return None
    middle, reach = math.log(value / (1 - value)), _REACH * error / (value * (1 - value))
    return _share(middle - reach), _share(middle + reach)


def _share(logit: float) -> float:
    return 1 / (1 + math.exp(-logit)) if logit > -700 else 0.0


def moved(measure: Measure, value: Floats, variance: Floats, noise: Floats) -> Floats:
    """[r, n] values as other test sets might have given them, by standard normal noise [r, n]; on the same scales as
    `interval`. NaN where the variance is not known."""
    error = noise * np.sqrt(variance)
    if not measure.limited:
        return np.maximum(0.0, value + error)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        drawn = 1 / (1 + (1 - value) / value * np.exp(-error / (value * (1 - value))))
    return np.where((value > 0) & (value < 1), drawn, value + 0 * error)


def facts(
    confusion: Counts,
    beside: Floats | None,
    names: Sequence[str],
    test_of: Counts,
    cluster: Counts | None,
    wanted: Sequence[Measure] = tuple(MEASURES.values()),
) -> Row:
    """Measures of the nodes of a run: `sites` by name and, where clusters are known, `clusters` in their order,
    each with its value and the ends of its interval; null for what is not known. That of a cluster is the mean over
    those of its nodes that have one."""
    told: Row = {}
    for measure in wanted:
        value, variance = values(measure, confusion, beside), variances(measure, confusion, beside)
        sites = {name: _fact(measure, *pair) for name, *pair in zip(names, value, variance, strict=True)}
        told[measure.name] = {"sites": sites}
        if cluster is not None:
            groups = [(cluster == c) & ~np.isnan(value) for c in range(int(cluster.max()) + 1)]
            told[measure.name]["clusters"] = [
                _fact(measure, *mean_over(value[group], variance[group], test_of[group])) for group in groups
            ]
    return told


def _fact(measure: Measure, value: float, variance: float) -> Row:
    low, high = interval(measure, float(value), float(variance)) or (None, None)
    return {"value": None if math.isnan(value) else float(value), "low": low, "high": high}
