"""The stages around an experiment's algorithm: guard and attack, from their names to what they do."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from facade.algorithms.local import Local
from facade.attacks import ATTACKS
from facade.attacks.attack import Attack
from facade.attacks.attacked import Attacked, poisoned
from facade.attacks.poisoned_data import Backdoor, LabelFlip, triggered_test
from facade.core.algorithm import Algorithm
from facade.core.names import foreign, is_foreign, look_up
from facade.data.federation import Federation
from facade.data.samples import Holdings
from facade.errors import ExperimentError
from facade.experiment.config import Experiment
from facade.guards import GUARDS
from facade.guards.guard import Guard
from facade.guards.guarded import Guarded

T = TypeVar("T")

_ON_HEADS = ("false-head", "adaptive-head")
"""Attacks on the heads that nodes choose among."""
_ON_SEEDING = ("lying-bid", "false-sums")
"""Attacks on how nodes agree on where heads start."""


def with_stages(algorithm: Algorithm[Any], experiment: Experiment) -> Algorithm[Any]:
    """The algorithm behind the experiment's guard, and among its attackers. Where nobody sends anything, there is
    nothing to guard against, and no way to attack."""
    rounds, rule, section = experiment.training.rounds, experiment.guard.rule, experiment.attack
    guard = None if rule == "none" else _made("guard", rule, GUARDS, Guard)  # type: ignore[type-abstract]
    attack = attack_of(experiment)
    if isinstance(algorithm, Local):
        return algorithm
    if guard is not None:
        algorithm = Guarded(algorithm.all_reduce, inner=algorithm, guard=guard, rounds=rounds)
    if attack is None:
        return algorithm
    _check_attack(attack, algorithm, experiment)
    return Attacked(
        algorithm.all_reduce,
        inner=algorithm,
        attack=attack,
        nodes=tuple(section.nodes),
        start=section.start,
        rounds=rounds,
    )


def stage_warnings(experiment: Experiment) -> list[str]:
    """What a guard cannot keep off, as the experiment stands."""
    heads, seeding = (experiment.algorithm.get(key) for key in ("heads", "seeding"))
    if experiment.guard.rule == "none" or seeding != "class-means" or not isinstance(heads, int) or heads < 2:
        return []
    return [
        f"guard.rule = '{experiment.guard.rule}' does not see members who lie alike and so take one of a fixed number"
        f" of heads (algorithm.heads = {heads}); use heads = 'auto'"
    ]


def attack_of(experiment: Experiment) -> Attack | None:
    """What the experiment's attackers do; None without attackers."""
    kind = experiment.attack.kind
    return None if kind == "none" else _made("attack", kind, ATTACKS, Attack)


def _check_attack(attack: Attack, algorithm: Algorithm[Any], experiment: Experiment) -> None:
    """Refuse an attack that could not be played, or that would be none."""
    kind, name = experiment.attack.kind, experiment.algorithm["name"]
    if attack.omniscient and (experiment.runtime.shards > 1 or experiment.runtime.name != "local"):
        raise ExperimentError(
            f"attackers of kind '{kind}' see the messages of all nodes, which only a run in one piece has;"
            " use runtime.name = 'local' and runtime.shards = 1"
        )
    if kind in _ON_HEADS and algorithm.heads_compared < 2:
        raise ExperimentError(
            f"attack.kind = '{kind}' is on heads, but nodes of algorithm '{name}' have none to choose from;"
            " use algorithm.name = 'facade' with two heads or more, or another attack, such as 'sign-flip'"
        )
    if kind in _ON_SEEDING and experiment.algorithm.get("seeding", "none") == "none":
        raise ExperimentError(
            f"attack.kind = '{kind}' is on how nodes agree on where heads start, which those of algorithm '{name}' do"
            " not do here; use algorithm.name = 'facade' with seeding = 'class-means', or another attack"
        )


def attacked(federation: Federation, experiment: Experiment) -> Federation:
    """The federation with test sets that show what came of an attack, if there is one that it can show."""
    attack = attack_of(experiment)
    if attack is None:
        return federation
    bad = np.isin(np.arange(federation.n), experiment.attack.nodes)
    for c in [] if federation.cluster is None else np.unique(federation.cluster):
        if bad[federation.cluster == c].all():
            raise ExperimentError(
                f"attack.nodes = {experiment.attack.nodes} are all nodes of cluster {c}, so that nothing could be said"
                " of it; leave one of every cluster honest"
            )
    if isinstance(attack, Backdoor):
        return dataclasses.replace(federation, triggered=[triggered_test(test) for test in federation.tests])
    return federation


def falsified(held: Holdings, experiment: Experiment, classes: Sequence[str]) -> Holdings:
    """What nodes train on: attackers may have made something else of their samples."""
    attack = attack_of(experiment)
    if attack is None:
        return held
    if isinstance(attack, LabelFlip):
        attack = dataclasses.replace(attack, classes=len(classes))
    return poisoned(held, attack, experiment.attack.nodes)


def _made(kind: str, name: str, table: dict[str, type[T]], base: type[T]) -> T:
    """The rule or attack of a name, with its own defaults."""
    if not is_foreign(name):
        return look_up(kind, name, table)()
    attribute = foreign(kind, name)
    if not (isinstance(attribute, type) and issubclass(attribute, base)):
        raise ExperimentError(f"{kind} '{name}' is not derived from facade.{base.__name__}")
    if not getattr(vars(attribute).get("__dataclass_params__"), "frozen", False):
        raise ExperimentError(f"{kind} '{name}' is no frozen dataclass; write @dataclass(frozen=True) above its class")
    if inspect.isabstract(attribute):
        missing = ", ".join(sorted(getattr(attribute, "__abstractmethods__", ())))
        raise ExperimentError(f"{kind} '{name}' has no {missing}(); write it, as docs/algorithms.md shows")
    try:
        return attribute()
    except TypeError as error:
        raise ExperimentError(
            f"{kind} '{name}' cannot be made without arguments ({error}); give its fields defaults"
        ) from None
