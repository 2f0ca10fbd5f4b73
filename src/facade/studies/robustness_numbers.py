"""The runs of the study of robustness by question, and what they say of attackers."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from facade.studies.kept_lines import BEFORE, Case, KeptLines, KeptRun
from facade.studies.numbers import average, interval, mean
from facade.studies.robustness import DEGREE, FEW_SEEDS, HOME, NOBODY, ROUNDS, SEEDS, Place, Threat, cifar, digits

MAJORITY, MINORITY = 0, 1
EVIDENCE = 10.0
"""Points that an attack must cost the minority without a guard, to say something about guards."""


class RobustnessRuns(NamedTuple):
    """The runs of the study, as far as they are kept."""

    kept: KeptLines

    def attacked(self, rule: str, threat: Threat = NOBODY) -> list[KeptRun]:
        """FACADE at home, all seeds."""
        return self._runs(digits(rule, threat), SEEDS)

    def ruled(self, algorithm: dict[str, Any], rule: str, threat: Threat = NOBODY) -> list[KeptRun]:
        """At home, the seeds with which rules are compared."""
        return self._runs(digits(rule, threat, HOME, algorithm), FEW_SEEDS)

    def elsewhere(self, place: Place, rule: str, threat: Threat) -> list[KeptRun]:
        """FACADE in another division, or with other attackers."""
        return self._runs(digits(rule, threat, place), FEW_SEEDS)

    def cifar(self, rule: str, threat: Threat = NOBODY) -> list[KeptRun]:
        """CIFAR-10."""
        return self._runs(cifar(rule, threat), (1,))

    def _runs(self, settings: dict[str, Any], seeds: tuple[int, ...]) -> list[KeptRun]:
        return self.kept.runs(Case("", "", settings, seeds))


class Worst(NamedTuple):
    """What the strongest of several attacks leaves of an accuracy, or makes of a share."""

    value: float
    """NaN if not all of it is computed."""
    name: str = ""

    def __str__(self) -> str:
        return "-" if math.isnan(self.value) else f"{self.value:.1f} ({self.name})"


def lowest(values: dict[Threat, float]) -> Worst:
    """The lowest value, and the attack that brings it about."""
    if not values or any(map(math.isnan, values.values())):
        return Worst(math.nan)
    threat = min(values, key=lambda each: values[each])
    return Worst(values[threat], threat.name)


def highest(values: dict[Threat, float]) -> Worst:
    """The highest value, and the attack that brings it about."""
    value, name = lowest({threat: -value for threat, value in values.items()})
    return Worst(-value, name)


def cost(study: RobustnessRuns, threat: Threat) -> float:
    """Points of the minority that an attack takes where nobody is on guard; NaN where it is not known."""
    return mean(study.attacked("none"), MINORITY) - mean(study.attacked("none", threat), MINORITY)


def dropped_of(run: KeptRun, cluster: int) -> float:
    """Share of the messages of a cluster's honest nodes of which something was dropped, in percent."""
    return _dropped(run, run.honest & (run.cluster == cluster))


def dropped_of_attackers(run: KeptRun) -> float:
    """The same of attackers' messages."""
    return _dropped(run, ~run.honest)


def _dropped(run: KeptRun, senders: Any) -> float:
    return 100 * float(np.array(run.dropped)[senders].mean()) / (DEGREE * (ROUNDS - BEFORE))


def guarded(runs: list[KeptRun]) -> list[KeptRun]:
    """Those of which it is known what was dropped."""
    return [run for run in runs if run.dropped is not None]


def gained(runs: list[KeptRun], others: list[KeptRun]) -> str:
    """Points of every cluster above other runs, seed by seed."""
    theirs = {run.seed: run for run in others}
    pairs = [(run.clusters, theirs[run.seed].clusters) for run in runs if run.seed in theirs]
    if not pairs:
        return "-"
    return " / ".join(interval(one[c] - other[c] for one, other in pairs) for c in range(len(pairs[0][0])))


def triggered(runs: list[KeptRun]) -> float:
    """How often honest nodes take what carries a backdoor's trigger for its target, in percent over seeds."""
    return average(100 * run.triggered for run in runs if run.triggered is not None)


def number(value: float) -> str:
    """With one decimal; "-" where it is not known."""
    return "-" if math.isnan(value) else f"{value:.1f}"
