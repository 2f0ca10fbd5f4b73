"""What the study of robustness had to show, and whether it does."""

from __future__ import annotations

from collections.abc import Iterator

from facade.studies.numbers import Bar, average, mean, means
from facade.studies.robustness import BACKDOOR, CIFAR_THREATS, EL, LATE_THREATS, NOBODY, THREATS, USUAL_RULES, Threat
from facade.studies.robustness_numbers import (
    EVIDENCE,
    MAJORITY,
    MINORITY,
    RobustnessRuns,
    cost,
    dropped_of,
    guarded,
    highest,
    lowest,
    number,
    triggered,
)

EVERY = (*THREATS, *LATE_THREATS)
MOST_LOST = {MAJORITY: 1.5, MINORITY: 3.0}
"""Points that an attack may take from a cluster that is guarded."""
MOST_PAID = 0.5
"""Points that the guard may take from a cluster where nobody attacks."""
MOST_DROPPED = 5.0
MOST_TRIGGERED = 15.0
"""Percent."""
PRICE = 10.0
"""Points of the minority that a usual rule was expected to cost."""
NAMES = {MAJORITY: "majority", MINORITY: "minority"}


def bars(study: RobustnessRuns) -> list[Bar]:
    """Everything that was asked for."""
    return [*_attacked(study), *_at_peace(study), *_by_the_way(study), _usual_rules(study), *_cifar(study)]


def evidence(study: RobustnessRuns) -> list[Threat]:
    """Attacks that cost the minority a lot where nobody is on guard."""
    return [threat for threat in EVERY if cost(study, threat) >= EVIDENCE]


def _attacked(study: RobustnessRuns) -> Iterator[Bar]:
    """What the strongest attack leaves to each cluster."""
    counted = evidence(study)
    for which, threats in ((f"the {len(counted)} attacks that count", counted), (f"all {len(EVERY)}", EVERY)):
        for cluster, points in MOST_LOST.items():
            worst = lowest({threat: mean(study.attacked("fair", threat), cluster) for threat in threats})
            free = mean(study.attacked("none"), cluster)
            asked = f"fair, worst over {which}: {NAMES[cluster]} at most {points:g} points below no attack, no guard"
            yield Bar(asked, f"{worst} against {number(free)}", worst.value >= free - points)


def _at_peace(study: RobustnessRuns) -> Iterator[Bar]:
    """What the guard costs where nobody attacks."""
    fair, none = study.attacked("fair"), study.attacked("none")
    for cluster, name in NAMES.items():
        asked = f"fair, no attack: {name} at most {MOST_PAID:g} points below no guard"
        seen = f"{number(mean(fair, cluster))} against {number(mean(none, cluster))}"
        yield Bar(asked, seen, mean(fair, cluster) >= mean(none, cluster) - MOST_PAID)


def _by_the_way(study: RobustnessRuns) -> Iterator[Bar]:
    """On whom protection falls, and what own samples cannot show."""
    shares = {
        threat: average(dropped_of(run, MINORITY) for run in guarded(study.attacked("fair", threat)))
        for threat in (NOBODY, *EVERY)
    }
    worst = highest(shares)
    asked = f"fair: of honest minority messages at most {MOST_DROPPED:g} % dropped after round 40, whatever the attack"
    seen = f"no attack {number(shares[NOBODY])} %, at worst {worst}"
    yield Bar(asked, seen, worst.value <= MOST_DROPPED)
    fair, none = (triggered(study.attacked(rule, BACKDOOR)) for rule in ("fair", "none"))
    asked = f"fair: a backdoor works in at most {MOST_TRIGGERED:g} % of the cases"
    yield Bar(asked, f"{number(fair)} %; no guard {number(none)} %", fair <= MOST_TRIGGERED)


def _usual_rules(study: RobustnessRuns) -> Bar:
    """The table that motivates it."""
    free = mean(study.ruled(EL, "none"), MINORITY)
    lost = {rule: free - mean(study.ruled(EL, rule), MINORITY) for rule in USUAL_RULES}
    dear = [rule for rule in USUAL_RULES if lost[rule] >= PRICE]
    asked = f"EL, no attack: at least three of the usual rules cost the minority {PRICE:g} points"
    return Bar(asked, ", ".join(f"{rule} {number(points)}" for rule, points in lost.items()), len(dear) >= 3)


def _cifar(study: RobustnessRuns) -> Iterator[Bar]:
    free = study.cifar("none")
    limit = mean(free, MINORITY) - MOST_LOST[MINORITY]
    for threat in CIFAR_THREATS:
        fair, none = (study.cifar(rule, threat) for rule in ("fair", "none"))
        asked = f"CIFAR-10, {threat.name}: fair keeps the minority within 3 points of no attack, no guard does not"
        met = mean(fair, MINORITY) >= limit and mean(none, MINORITY) < limit
        yield Bar(asked, f"fair {means(fair)}, no guard {means(none)} against {means(free)}", met)
