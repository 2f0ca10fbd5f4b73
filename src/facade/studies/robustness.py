"""The study of robustness: what attackers do to honest nodes of every cluster, what rules of averaging make of it, and
what these rules cost where nobody attacks."""

from __future__ import annotations

from typing import Any, NamedTuple

from facade.attacks import ATTACKS
from facade.guards import GUARDS
from facade.studies.kept_lines import Case

SEEDS = tuple(range(1, 11))
FEW_SEEDS = tuple(range(1, 6))
ROUNDS = 120
DEGREE = 4
"""Messages that a node hears, and that are heard of it, in a round."""

FACADE: dict[str, Any] = {"algorithm.name": "facade", "algorithm.heads": "auto"}
TOLD: dict[str, Any] = {"algorithm.name": "facade", "algorithm.heads": 2}
EL: dict[str, Any] = {"algorithm.name": "el"}
CIFAR: dict[str, Any] = {
    "data.source": "cifar10", "data.clusters": "30:2", "model.name": "gn-lenet", "training.rounds": ROUNDS,
    "training.lr": 0.01,
}  # fmt: skip


class Threat(NamedTuple):
    """What attackers do, and from which round on."""

    kind: str = "none"
    start: int = 0

    @property
    def name(self) -> str:
        """As tables call it."""
        if self == NOBODY:
            return "no attack"
        return f"{self.kind} from round {self.start}" if self.start else self.kind


class Place(NamedTuple):
    """How nodes are divided into clusters, and which of them attack."""

    clusters: str
    attackers: tuple[int, ...]

    @property
    def name(self) -> str:
        """As tables call it."""
        word = "attacker" if len(self.attackers) == 1 else "attackers"
        return f"{self.clusters}, {word} {', '.join(map(str, self.attackers))}"


NOBODY = Threat()
BACKDOOR = Threat("backdoor")
HOME = Place("30:2", (3, 11, 20))
"""Three attackers, all of the majority."""
RULES = ("none", *GUARDS)
USUAL_RULES = ("balance", "clip", "median", "trimmed", "krum", "nearest")
"""Those that know nothing but distances."""
THREATS = tuple(Threat(kind) for kind in ATTACKS)
LATE_THREATS = tuple(
    Threat(kind, 50)
    for kind in ("sign-flip", "noise", "alie", "ipm", "false-head", "adaptive-core", "adaptive-head")
)  # fmt: skip
"""Attacks that begin when heads have parted."""
PLACES = (
    Place("20:10:2", HOME.attackers),
    Place("30:2", (3, 11, 20, 5, 14, 26)),
    Place("24:8", (24, 27, 30)),
    Place("30:2", (30,)),
)
THREATS_ELSEWHERE = tuple(Threat(kind) for kind in ("sign-flip", "alie", "false-head", "adaptive-head"))
TOLD_THREATS = (NOBODY, Threat("label-flip"), Threat("sign-flip"))
CIFAR_RULES = ("none", "median", "fair")
CIFAR_THREATS = (Threat("sign-flip"), Threat("false-head", 60), Threat("adaptive-head", 60))


def rule_threats(algorithm: dict[str, Any]) -> tuple[Threat, ...]:
    """The attacks under which all rules are compared; nothing is false about a head where there are none."""
    third = "noise" if algorithm == EL else "false-head"
    return tuple(Threat(kind) for kind in ("sign-flip", "alie", third, "label-flip"))


def stages(rule: str, threat: Threat, attackers: tuple[int, ...]) -> dict[str, Any]:
    """The settings of guard and attack."""
    guard = {} if rule == "none" else {"guard.rule": rule}
    if threat == NOBODY:
        return guard
    start = {"attack.start": threat.start} if threat.start else {}
    return guard | {"attack.kind": threat.kind, "attack.nodes": list(attackers)} | start


def digits(
    rule: str, threat: Threat, place: Place = HOME, algorithm: dict[str, Any] | None = None
) -> dict[str, Any]:  # fmt: skip
    """The settings of runs on digits; FACADE that is not told how many clusters there are, unless said otherwise."""
    data = {"data.source": "digits", "data.clusters": place.clusters, "training.rounds": ROUNDS}
    return data | (algorithm or FACADE) | stages(rule, threat, place.attackers)


def cifar(rule: str, threat: Threat) -> dict[str, Any]:
    """The settings of runs on CIFAR-10."""
    return CIFAR | FACADE | stages(rule, threat, HOME.attackers)


def cases() -> list[Case]:
    """All runs of the study on digits; some belong to several questions and are computed once."""
    return [*attacks(), *rules(), *backdoors(), *more()]


def attacks() -> list[Case]:
    """Every attack, with the recommended guard and with none."""
    return [
        Case("attacks", f"{rule}, {threat.name}", digits(rule, threat), SEEDS)
        for rule in ("none", "fair")
        for threat in (NOBODY, *THREATS, *LATE_THREATS)
    ]


def rules() -> list[Case]:
    """Every rule, under a few attacks and none."""
    return [
        Case("rules", f"{rule}, {threat.name}", digits(rule, threat, HOME, algorithm), FEW_SEEDS)
        for algorithm in (EL, FACADE)
        for rule in RULES
        for threat in (NOBODY, *rule_threats(algorithm))
    ]


def backdoors() -> list[Case]:
    """A backdoor where attackers cannot have a head of their own: told the number of heads, and without heads."""
    return [
        Case("backdoors", f"{rule}, {name}", digits(rule, BACKDOOR, HOME, algorithm), FEW_SEEDS)
        for name, algorithm in (("told", TOLD), ("EL", EL))
        for rule in ("none", "fair")
    ]


def more() -> list[Case]:
    """Other divisions, more attackers, attackers in the minority; and FACADE told how many heads there are."""
    elsewhere = [
        Case("more", f"{rule}, {place.name}, {threat.name}", digits(rule, threat, place), FEW_SEEDS)
        for place in PLACES
        for rule in ("none", "fair")
        for threat in (NOBODY, *THREATS_ELSEWHERE)
    ]
    told = [
        Case("more", f"fair, told, {threat.name}", digits("fair", threat, HOME, TOLD), FEW_SEEDS)
        for threat in TOLD_THREATS
    ]
    return [*elsewhere, *told]


def cifar_cases() -> list[Case]:
    """The runs on CIFAR-10, which take minutes each."""
    return [
        Case("cifar", f"{rule}, {threat.name}", cifar(rule, threat), (1,))
        for rule in CIFAR_RULES
        for threat in (NOBODY, *CIFAR_THREATS)
    ]
