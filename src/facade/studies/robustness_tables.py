"""The tables of the study of robustness."""

from __future__ import annotations

from facade.paper.reproduction_tables import table
from facade.studies.kept_lines import KeptRun
from facade.studies.numbers import cell, interval, mean
from facade.studies.robustness import (
    BACKDOOR,
    CIFAR_RULES,
    CIFAR_THREATS,
    EL,
    FACADE,
    NOBODY,
    PLACES,
    RULES,
    THREATS_ELSEWHERE,
    TOLD,
    TOLD_THREATS,
    rule_threats,
)
from facade.studies.robustness_bars import EVERY
from facade.studies.robustness_numbers import (
    EVIDENCE,
    MAJORITY,
    MINORITY,
    RobustnessRuns,
    cost,
    dropped_of,
    dropped_of_attackers,
    gained,
    guarded,
    lowest,
    number,
    triggered,
)

ALGORITHMS = {"EL": EL, "FACADE": FACADE}
DROPPING = ("fair", "own-data", "balance", "nearest")
"""Rules that drop what they hear; the others change it."""


def price(study: RobustnessRuns) -> str:
    """What every rule costs where nobody attacks."""
    lines = []
    for rule in RULES:
        line = [rule]
        for algorithm in ALGORITHMS.values():
            runs, free = study.ruled(algorithm, rule), study.ruled(algorithm, "none")
            line += [cell(runs), "" if rule == "none" else gained(runs, free)]
        lines.append(line)
    above = [heading for name in ALGORITHMS for heading in (name, f"{name}: points above none")]
    return table(["rule", *above], lines)


def attacks(study: RobustnessRuns) -> str:
    """Every attack, without a guard and with the recommended one."""
    lines = []
    for threat in (NOBODY, *EVERY):
        lost = cost(study, threat)
        counts = "" if threat == NOBODY else f"{number(lost)}{', counts' if lost >= EVIDENCE else ''}"
        lines.append([threat.name, *(cell(study.attacked(rule, threat)) for rule in ("none", "fair")), counts])
    return table(["attack", "none", "fair", "points of the minority lost without a guard"], lines)


def worst(study: RobustnessRuns) -> str:
    """What the strongest attack leaves to each cluster under every rule."""
    lines = []
    for rule in RULES:
        line = [rule]
        for algorithm in ALGORITHMS.values():
            for cluster in (MAJORITY, MINORITY):
                threats = rule_threats(algorithm)
                line.append(
                    str(lowest({threat: mean(study.ruled(algorithm, rule, threat), cluster) for threat in threats}))
                )
        lines.append(line)
    above = [f"{name}, {cluster}" for name in ALGORITHMS for cluster in ("majority", "minority")]
    return table(["rule", *above], lines)


def rules(study: RobustnessRuns, name: str) -> str:
    """Every rule under every attack of the comparison, with one algorithm."""
    algorithm = ALGORITHMS[name]
    threats = rule_threats(algorithm)
    lines = [[rule, *(cell(study.ruled(algorithm, rule, threat)) for threat in threats)] for rule in RULES]
    return table([name, *(threat.name for threat in threats)], lines)


def dropped(study: RobustnessRuns) -> str:
    """Whose messages the recommended guard drops."""
    lines = []
    for threat in (NOBODY, *EVERY):
        runs = guarded(study.attacked("fair", threat))
        heard = threat != NOBODY and threat.kind != "silent"
        bad = interval(dropped_of_attackers(run) for run in runs) if heard else ""
        closed = interval(run.gates_closed or 0 for run in runs)
        lines.append([threat.name, *_of_clusters(runs), bad, closed])
    return table(["attack", "honest majority", "honest minority", "attackers", "gates closed"], lines)


def dropped_at_peace(study: RobustnessRuns) -> str:
    """Whose messages rules drop where all are honest."""
    lines = []
    for rule in DROPPING:
        of = [guarded(study.ruled(algorithm, rule)) for algorithm in ALGORITHMS.values()]
        lines.append([rule, *(share for runs in of for share in _of_clusters(runs))])
    above = [f"{name}, {cluster}" for name in ALGORITHMS for cluster in ("majority", "minority")]
    return table(["rule", *above], lines)


def _of_clusters(runs: list[KeptRun]) -> list[str]:
    return [interval(dropped_of(run, cluster) for run in runs) for cluster in (MAJORITY, MINORITY)]


def backdoor(study: RobustnessRuns) -> str:
    """How often a trigger works."""
    lines = []
    for name, algorithm in {'FACADE, heads = "auto"': FACADE, "FACADE, heads = 2": TOLD, "EL": EL}.items():
        of = [study.ruled(algorithm, rule, BACKDOOR) for rule in ("none", "fair")]
        lines.append([name, *(f"{number(triggered(runs))} % · {cell(runs)}" for runs in of)])
    return table(["", "none", "fair"], lines)


def elsewhere(study: RobustnessRuns) -> str:
    """Other divisions, more attackers, attackers in the minority."""
    lines = [
        [place.name, threat.name, *(cell(study.elsewhere(place, rule, threat)) for rule in ("none", "fair"))]
        for place in PLACES
        for threat in (NOBODY, *THREATS_ELSEWHERE)
    ]
    return table(["clusters", "attack", "none", "fair"], lines)


def told(study: RobustnessRuns) -> str:
    """FACADE told how many heads there are."""
    lines = [
        [threat.name, *(cell(study.ruled(algorithm, "fair", threat)) for algorithm in (TOLD, FACADE))]
        for threat in TOLD_THREATS
    ]
    return table(["attack", "heads = 2", 'heads = "auto"'], lines)


def cifar(study: RobustnessRuns) -> str:
    """CIFAR-10."""
    lines = [
        [threat.name, *(cell(study.cifar(rule, threat)) for rule in CIFAR_RULES)]
        for threat in (NOBODY, *CIFAR_THREATS)
    ]  # fmt: skip
    return table(["attack", *CIFAR_RULES], lines)
