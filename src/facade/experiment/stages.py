"""The stages around an experiment's algorithm: guard and attack, from their names to what they do."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from facade.attacks import ATTACKS
from facade.attacks.attack import Attack
from facade.attacks.attacked import Attacked, poisoned
from facade.attacks.poisoned_data import Backdoor, LabelFlip, triggered_test
from facade.core.algorithm import Algorithm
from facade.core.names import foreign, is_foreign, look_up
from facade.data.federation import Federation
from facade.errors import ExperimentError
from facade.experiment.config import Experiment
from facade.guards import GUARDS
from facade.guards.guard import Guard
from facade.guards.guarded import Guarded

T = TypeVar("T")


def with_stages(algorithm: Algorithm[Any], experiment: Experiment) -> Algorithm[Any]:
    """The algorithm behind the experiment's guard, and among its attackers."""
    rounds = experiment.training.rounds
    if experiment.guard.rule != "none":
        guard = _named("guard", experiment.guard.rule, GUARDS, Guard)  # type: ignore[type-abstract]
        algorithm = Guarded(algorithm.all_reduce, inner=algorithm, guard=guard(), rounds=rounds)
    attack, section = attack_of(experiment), experiment.attack
    if attack is not None:
        shards = experiment.runtime.shards > 1 or experiment.runtime.name != "local"
        if attack.omniscient and shards:
            raise ExperimentError(
                f"attackers of kind '{section.kind}' see the messages of all nodes, which only a run in one piece has;"
                " use runtime.name = 'local' and runtime.shards = 1"
            )
        algorithm = Attacked(
            algorithm.all_reduce,
            inner=algorithm,
            attack=attack,
            nodes=tuple(section.nodes),
            start=section.start,
            rounds=rounds,
        )
    return algorithm


def attack_of(experiment: Experiment) -> Attack | None:
    """What the experiment's attackers do; None without attackers."""
    kind = experiment.attack.kind
    return None if kind == "none" else _named("attack", kind, ATTACKS, Attack)()


def attacked(federation: Federation, experiment: Experiment) -> Federation:
    """The federation with what attackers make of their samples, and with test sets that show what came of it."""
    attack = attack_of(experiment)
    if attack is None:
        return federation
    if isinstance(attack, LabelFlip):
        attack = dataclasses.replace(attack, classes=len(federation.classes))
    federation = dataclasses.replace(
        federation, training=poisoned(federation.training, attack, experiment.attack.nodes)
    )
    if isinstance(attack, Backdoor):
        federation = dataclasses.replace(federation, triggered=[triggered_test(test) for test in federation.tests])
    return federation


def _named(kind: str, name: str, table: dict[str, type[T]], base: type[T]) -> type[T]:
    if not is_foreign(name):
        return look_up(kind, name, table)
    attribute = foreign(kind, name)
    if not (isinstance(attribute, type) and issubclass(attribute, base)):
        raise ExperimentError(f"{kind} '{name}' is not derived from facade.{base.__name__}")
    return attribute
