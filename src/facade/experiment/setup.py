"""Everything a runtime needs, made from an experiment."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from facade.core.algorithm import Algorithm
from facade.core.names import foreign, is_foreign, look_up
from facade.core.network import Network
from facade.core.plan import Plan
from facade.core.topology import TOPOLOGIES, Topology, connected
from facade.core.turn import Shard
from facade.core.types import Ids
from facade.data.federation import Federation
from facade.data.load import load
from facade.errors import ExperimentError
from facade.experiment.algorithm_table import build_algorithm
from facade.experiment.config import Experiment
from facade.experiment.sections import TrainingSection
from facade.experiment.stages import attacked, falsified, stage_warnings, with_stages
from facade.learning import models
from facade.learning.inputs import Inputs
from facade.learning.learner import Learner, Training
from facade.learning.machine import has_bf16_instructions
from facade.learning.optimisers import SGD, Adam, Optimiser, Schedule
from facade.learning.parts import RUNNING_STATISTICS


@dataclass(frozen=True)
class Setup:
    """The parts of a run."""

    experiment: Experiment
    algorithm: Algorithm[Any]
    federation: Federation
    learner: Learner
    plan: Plan

    def shard(self, nodes: Ids) -> Shard:
        """The given nodes as one process hosts them."""
        n, seed = self.federation.n, self.experiment.seed
        held = falsified(self.federation.training.only(nodes), self.experiment, self.federation.classes)
        return Shard(nodes, n, seed, self.learner, held)

    def shards(self) -> list[Shard]:
        """All nodes, divided into runtime.shards consecutive parts."""
        count = self.experiment.runtime.shards or 1
        if count > self.federation.n:
            raise ExperimentError(f"runtime.shards = {count} is more than the {self.federation.n} nodes")
        return [self.shard(nodes) for nodes in self.divided(count)]

    def divided(self, count: int) -> list[Ids]:
        """The ids of all nodes in `count` consecutive parts."""
        return np.array_split(np.arange(self.federation.n), count)


def set_up(experiment: Experiment, federation: Federation | None = None, founding_n: int | None = None) -> Setup:
    """Check an experiment against its data and make its parts; nothing is written. `founding_n`: see `planned`."""
    algorithm, plan = planned(experiment, founding_n) if experiment.n else (None, None)  # before data are read
    federation = load(experiment.data, experiment.seed) if federation is None else federation
    if plan is None or algorithm is None:
        algorithm, plan = planned(experiment, founding_n, federation.n)
    if federation.n != plan.n:
        raise ExperimentError(
            f"the federation has {federation.n} nodes but data.clusters = '{experiment.data.clusters}' names"
            f" {experiment.n}; use federation.section as the experiment's [data]"
        )
    counted = np.bincount(federation.cluster).tolist() if federation.cluster is not None else []
    if len(experiment.data.sizes) > 1 and counted and counted != experiment.data.sizes:
        raise ExperimentError(
            f"the federation's clusters have {':'.join(map(str, counted))} nodes but data.clusters ="
            f" '{experiment.data.clusters}'; use federation.section as the experiment's [data]"
        )
    if experiment.evaluation.images:
        federation = federation.tested_on(experiment.evaluation.images)
    federation = attacked(federation, experiment)
    if word := large_batch(experiment.training.batch, [len(rows) for rows in federation.training.rows]):
        warnings.warn(word, stacklevel=2)
    inputs = Inputs(federation.shape, federation.mean, federation.std, federation.scale)
    learner = learner_of(experiment, algorithm, inputs, federation.classes)
    _check_tokens(learner, federation)
    return Setup(experiment, algorithm, federation, learner, plan)


def _check_tokens(learner: Learner, federation: Federation) -> None:
    """Refuse a model that knows fewer tokens than the data have."""
    parts = [part.x for part in (federation.training.samples, *federation.tests) if len(part)]
    if federation.scale != "tokens" or not parts:
        return
    largest = max(int(x.max()) for x in parts)
    try:
        with torch.no_grad():
            learner.module(learner.untrained(0))(learner.inputs.blank(2, learner.dtype) + largest)
    except Exception as error:  # of a user's own class
        raise ExperimentError(
            f"the model cannot take token {largest}, the largest in the data ({error}); give its embedding"
            f" {largest + 1} rows"
        ) from error


def large_batch(batch: int, sizes: Sequence[int]) -> str | None:
    """In words, that nodes hold fewer samples (one number per node) than a batch has; None where all hold as many. A
    node without any is another site's."""
    small = {node: size for node, size in enumerate(sizes) if 0 < size < batch}
    if not small:
        return None
    node = min(small, key=small.__getitem__)
    others = f", and {len(small) - 1} more nodes hold fewer than that" if len(small) > 1 else ""
    return (
        f"training.batch = {batch} is more than the {small[node]} samples of node {node}{others}: there, a batch has"
        " samples several times; lower training.batch"
    )


def planned(experiment: Experiment, founding_n: int | None = None, n: int | None = None) -> tuple[Algorithm[Any], Plan]:
    """What a run does, as far as it follows from the experiment alone; ExperimentError where it cannot be played.
    `founding_n`: the nodes that the run began with, where some have come or gone since; `n`: those that there are,
    where the experiment leaves that to its data."""
    n = experiment.n if n is None else n
    algorithm = with_stages(build_algorithm(experiment.algorithm), experiment)
    topology = _topology(experiment)
    topology.check(n)
    fresh = algorithm.fresh if experiment.topology.fresh == "auto" else experiment.topology.fresh
    plan = Plan(
        n=n,
        seed=experiment.seed,
        rounds=experiment.training.rounds,
        every=experiment.evaluation.every,
        topology=topology,
        fresh=fresh and not topology.fixed,
        network=Network(experiment.network.loss, experiment.network.offline),
        all_reduce=algorithm.all_reduce,
        head=experiment.evaluation.head,
        prior=experiment.evaluation.prior,
        founding_n=founding_n,
    )
    for warning in [*algorithm.check(plan), *stage_warnings(experiment)]:
        warnings.warn(warning, stacklevel=2)
    if not plan.fresh and not connected(plan.graph(0)):
        warnings.warn(
            "the graph falls into parts that never hear each other, so each part learns a model of its own;"
            " add edges, or let it be drawn afresh every round (topology.fresh = true)",
            stacklevel=2,
        )
    return algorithm, plan


def learner_of(experiment: Experiment, algorithm: Algorithm[Any], inputs: Inputs, classes: Sequence[str]) -> Learner:
    """The experiment's model and how it is trained, for data that look as given."""
    learner = _learner(experiment, algorithm, inputs, len(classes))
    if learner.outputs != len(classes):
        raise ExperimentError(
            f"model '{experiment.model.name}' has {learner.outputs} outputs, but the data have"
            f" {len(classes)} classes; give it as many outputs (the argument `classes` of its constructor)"
        )
    if algorithm.heads_compared > 1 and not learner.has_head:
        raise ExperimentError(
            f"model.local = {experiment.model.local} covers the whole head, so that there are no heads to choose from;"
            " name a part of it, or use algorithm.name = 'deprl', which keeps the head at its node"
        )
    if learner.local_names and (averaged := sorted(learner.running_statistics - learner.local_names)):
        warnings.warn(
            f"model.local leaves '{averaged[0]}' to be averaged, over data that may look different from site to site;"
            f" add '{RUNNING_STATISTICS}' to it, or replace batch normalisation by group normalisation",
            stacklevel=2,
        )
    if algorithm.heads_compared > 1 and not learner.executor.features_once:
        warnings.warn(
            "this model cannot be split before its head, so every head is scored by a pass through the whole model;"
            " let its forward end with one call of its head, on one tensor, to compute features once",
            stacklevel=2,
        )
    return learner


def _topology(experiment: Experiment) -> Topology:
    section = experiment.topology
    if is_foreign(section.name):
        topology = foreign("topology", section.name)
        if not (isinstance(topology, type) and issubclass(topology, Topology)):
            raise ExperimentError(f"topology '{section.name}' is not derived from facade.Topology")
    else:
        topology = look_up("topology", section.name, TOPOLOGIES)
    given = {"degree": section.degree, "edges": section.edges}
    return topology(**{k: v for k, v in given.items() if k in topology.__dataclass_fields__})


def _optimiser(training: TrainingSection) -> Optimiser:
    schedule = Schedule(training.schedule, training.rounds, training.schedule_every, training.schedule_factor)
    if training.optimiser == "adam":
        return Adam(training.lr, schedule, training.weight_decay)
    return SGD(training.lr, schedule, training.weight_decay, training.momentum, training.nesterov)


def _learner(experiment: Experiment, algorithm: Algorithm[Any], inputs: Inputs, classes: int) -> Learner:
    named = experiment.model.head
    head = ["*"] if algorithm.whole_model_is_head else [named] if isinstance(named, str) else named
    training, runtime = experiment.training, experiment.runtime
    return Learner(
        models.factory(experiment.model.name, inputs.shape, classes),
        tuple(head),
        inputs,
        Training(training.steps, training.batch, _optimiser(training), training.init, training.loss),
        local=tuple(experiment.model.local),
        dtype=getattr(torch, runtime.dtype),
        device=_device(runtime.device),
        bf16=_bf16(runtime.precision),
        executor=runtime.executor,
        threads=runtime.threads,
    )


def _device(name: str) -> str:
    try:
        torch.zeros(1, device=name)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0].partition(". ")[0]
        raise ExperimentError(f"runtime.device = '{name}' cannot be used here ({reason}); use 'cpu'") from None
    return name


def _bf16(precision: str) -> bool:
    """Whether to compute in bfloat16; warns where the CPU has to emulate it."""
    if precision == "bf16" and not has_bf16_instructions():
        warnings.warn(
            "runtime.precision = 'bf16', but this CPU has no bfloat16 instructions: expect it to be slower than fp32",
            stacklevel=2,
        )
    return precision == "bf16"
