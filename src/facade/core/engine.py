"""The round loop. It is a generator that never touches a network: it yields a `Post` and is sent an
`Inbox`, and every runtime (simulator, Ray, real peers) drives this same function."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from facade.core import seeds, tree
from facade.core.messages import EVERYONE, Deliveries, Edges, Everyone, Inbox, Post
from facade.core.topology import Graph, Topology
from facade.data.federation import Federation, Holdings, Labelled
from facade.errors import DivergedError, ExperimentError
from facade.learning.learner import Examined, Learner
from facade.runs import state_files

if TYPE_CHECKING:
    from facade.algorithms.base import Algorithm

Ids = NDArray[np.int64]
Row = dict[str, Any]


@dataclass(frozen=True)
class Shard:
    """The nodes one process hosts. It knows no clusters and no test data: an algorithm cannot cheat."""

    nodes: Ids
    """[S] global ids, ascending."""
    n: int
    seed: int
    learner: Learner
    data: Holdings

    def zeros(self) -> Tensor:
        """[S] zeros in the run's dtype."""
        return torch.zeros(len(self.nodes), dtype=self.learner.dtype)


@dataclass(frozen=True)
class Samples:
    """The samples of one purpose and round, drawn block by block when they are needed."""

    data: Holdings
    seed: int
    purpose: str
    round: int
    count: int | None
    """Samples per node; None for all that a node holds, which may differ from node to node."""

    @property
    def nodes(self) -> Ids:
        """[S] global ids."""
        return self.data.nodes

    def __len__(self) -> int:
        return len(self.data.nodes)

    def of(self, block: slice) -> Labelled:
        """x [b, count, ...] and y [b, count] of a block of hosted nodes."""
        if self.count is None:
            return self.data.everything(block)
        return self.data.draw(self.seed, self.purpose, self.round, block, self.count)


@dataclass(frozen=True)
class Turn:
    """One round as a shard sees it."""

    shard: Shard
    round: int
    edges: Edges | Everyone
    """The round's edges into this shard."""
    degree: Tensor
    """[n] number of peers each node of the network hears in the graph."""
    plan: Plan

    @property
    def learner(self) -> Learner:
        """The shard's learner."""
        return self.shard.learner

    def samples(self, purpose: str, steps: int | None = None) -> Samples:
        """Each hosted node's samples for a purpose: `steps` batches (default: training.steps)."""
        training = self.learner.training
        count = training.samples if steps is None else steps * training.batch
        return Samples(self.shard.data, self.shard.seed, purpose, self.round, count)

    def all_samples(self) -> Samples:
        """All samples that each hosted node holds."""
        return Samples(self.shard.data, self.shard.seed, "all", self.round, None)

    def only(self, rows: Tensor) -> Turn:
        """The turn of some of the hosted nodes (rows ascending), for work that not all of them need."""
        nodes = self.shard.nodes[rows.numpy()]
        shard = dataclasses.replace(self.shard, nodes=nodes, data=self.shard.data.only(nodes))
        if not isinstance(self.edges, Edges):
            return dataclasses.replace(self, shard=shard)
        theirs = torch.isin(self.edges.receiver, rows)
        edges = Edges(torch.searchsorted(rows, self.edges.receiver[theirs]), self.edges.sender[theirs])
        return dataclasses.replace(self, shard=shard, edges=edges)


@dataclass(frozen=True)
class Network:
    """Simulated trouble: each message is lost, each node offline, with these probabilities."""

    loss: float = 0.0
    offline: float = 0.0

    def online(self, seed: int, round: int, nodes: Ids) -> NDArray[np.bool_]:
        """Which nodes take part in a round; addressed by (seed, round, node)."""
        if not self.offline:
            return np.ones(len(nodes), np.bool_)
        return seeds.uniform(seed, "offline", round, nodes, 1)[:, 0] >= self.offline

    def deliver(self, shard: Shard, round: int, wanted: Edges | Everyone) -> Edges | Everyone:
        """The wanted edges whose message arrives; addressed by (seed, round, sender, receiver)."""
        if self.loss == 0 and self.offline == 0:
            return wanted
        row, sender = (part.numpy() for part in listed(shard, wanted))
        receiver = shard.nodes[row]
        kept = seeds.pair_uniform(shard.seed, "loss", round, sender, receiver) >= self.loss
        kept &= self.online(shard.seed, round, receiver) & self.online(shard.seed, round, sender)
        return Edges(torch.from_numpy(row[kept]), torch.from_numpy(sender[kept]))


def listed(shard: Shard, wanted: Edges | Everyone) -> Edges:
    """The edges themselves, also where they are everyone's."""
    if isinstance(wanted, Edges):
        return wanted
    row, sender = np.nonzero(shard.nodes[:, None] != np.arange(shard.n)[None, :])
    return Edges(torch.from_numpy(row), torch.from_numpy(sender))


@dataclass(frozen=True)
class Plan:
    """What a run does besides the algorithm itself."""

    n: int
    """Nodes of the whole network."""
    seed: int
    rounds: int
    every: int
    """Rounds between two evaluations."""
    topology: Topology
    fresh: bool
    """Whether every round has a graph of its own."""
    network: Network
    all_reduce: bool
    """Whether the run ends with one exchange in which everybody hears everybody."""
    head: Literal["chosen", "oracle"] = "chosen"
    """The head that nodes are tested with."""

    def graph(self, round: int) -> Graph:
        """The round's graph; a fixed one is that of round 0."""
        return self.topology.draw(self.n, self.seed, round) if self.fresh else self._fixed_graph

    @functools.cached_property
    def _fixed_graph(self) -> Graph:
        return self.topology.draw(self.n, self.seed, 0)

    @functools.cached_property
    def spread(self) -> int:
        """Rounds in which what one node knows reaches everyone by gossip; of a large fixed graph it takes a
        while to find out."""
        return self.topology.spread(self.n, self.seed, self.fresh)

    def evaluates(self, done: int) -> bool:
        """Whether there is an evaluation after `done` rounds."""
        return done == self.rounds or done % self.every == 0


class Played(NamedTuple):
    """The end of a shard's run."""

    state: Any
    rows: list[Row]


def play(
    algorithm: Algorithm[Any], shard: Shard, plan: Plan, federation: Federation, start: tuple[int, Any] | None = None
) -> Generator[Post, Inbox, Played]:
    """Play all rounds of a run for one shard; `start` = (round, state) continues an earlier one.

    The federation is asked for tests only; the algorithm sees the shard.
    """
    watch = shard.learner.stopwatch
    first, state = start if start is not None else (0, algorithm.init(shard))
    del start  # which would keep the first state through the whole run
    state_files.check(state)
    rows: list[Row] = []
    for round in range(first, plan.rounds):
        with watch.phase("topology"):
            turn = turn_of(shard, plan, round)
        before = state
        online = torch.from_numpy(plan.network.online(shard.seed, round, shard.nodes))
        state = _trained(algorithm, turn, state, online)
        wanted = plan.network.deliver(shard, round, algorithm.wanted(turn, state))
        inbox = yield Post(round, algorithm.message(turn, state), wanted, before, rows)
        with watch.phase("mix"):
            state = algorithm.mix(turn, state, inbox)
            if not online.all():
                state = tree.where(online, state, before)
        rows = _notes(algorithm, shard, state, round, _heard(shard, inbox))
        del inbox, before  # with many nodes, each holds as much as the state itself
        if plan.evaluates(round + 1):
            rows += _evaluations(algorithm, shard, plan, federation, state, round + 1)
    if not plan.all_reduce:
        last = [row for row in rows if row["kind"] == "evaluation"]
        return Played(state, rows + [{**row, "kind": "final", "bytes": 0} for row in last])
    turn = turn_of(shard, plan, plan.rounds)
    inbox = yield Post(plan.rounds, algorithm.message(turn, state), EVERYONE, state, rows)
    with watch.phase("mix"):
        state = algorithm.finish(turn, state, inbox)
    finals = _evaluations(algorithm, shard, plan, federation, state, plan.rounds)
    heard = _heard(shard, inbox)
    return Played(state, [{**row, "kind": "final", "bytes": heard[i]} for i, row in enumerate(finals)])


def turn_of(shard: Shard, plan: Plan, round: int) -> Turn:
    """A round as a shard sees it; the one after the last is the final exchange."""
    if round == plan.rounds:
        return Turn(shard, round, EVERYONE, torch.full((shard.n,), shard.n - 1), plan)
    graph = plan.graph(round)
    degree = torch.from_numpy(graph.degree)
    if graph.everyone:
        return Turn(shard, round, EVERYONE, degree, plan)
    row, sender = graph.into(shard.nodes)
    return Turn(shard, round, Edges(torch.from_numpy(row), torch.from_numpy(sender)), degree, plan)


def _heard(shard: Shard, inbox: Inbox) -> list[int]:
    """Payload bytes each hosted node heard."""
    size = tree.row_bytes(inbox.pool)
    if not isinstance(inbox.deliveries, Deliveries):
        return [size * (shard.n - 1)] * len(shard.nodes)
    counts = torch.bincount(inbox.deliveries.receiver, minlength=len(shard.nodes))
    return [int(count) * size for count in counts]


def _notes(algorithm: Algorithm[Any], shard: Shard, state: Any, round: int, heard: list[int]) -> list[Row]:
    """One row per hosted node: what the algorithm notes, and the bytes heard in this round."""
    with shard.learner.stopwatch.phase("record"):
        noted = algorithm.notes(state)
        _check_notes(noted, len(shard.nodes))
        notes = {name: _recorded(values) for name, values in noted.items()}
        return [
            {"kind": "round", "round": round + 1, "node": node, "bytes": heard[i]}
            | {name: values[i] for name, values in notes.items()}
            for i, node in enumerate(shard.nodes.tolist())
        ]


def _check_notes(notes: Mapping[str, Tensor], nodes: int) -> None:
    """Refuse notes of a user's own algorithm that rows could not hold, or readers would stumble over."""
    taken = sorted({"kind", "round", "node", "bytes"} & set(notes))
    if taken:
        raise ExperimentError(f"notes() has '{taken[0]}', which every row has already; call it something else")
    if "train_loss" not in notes:
        raise ExperimentError(f"notes() has no 'train_loss' [S], only {', '.join(notes) or 'nothing'}; note it as well")
    for name, values in notes.items():
        if not isinstance(values, Tensor) or values.shape[:1] != (nodes,):
            given = f"shape {list(values.shape)}" if isinstance(values, Tensor) else f"type {type(values).__name__}"
            raise ExperimentError(f"notes() has '{name}' of {given}; expected a tensor with {nodes} rows, one per node")
    if "choice" in notes and notes["choice"].dtype != torch.int64:
        raise ExperimentError(f"notes() has 'choice' of {notes['choice'].dtype}; expected the heads' numbers as int64")


def _recorded(values: Tensor) -> list[Any]:
    """Values as JSON knows them: null for what was not computed (NaN) or is no number that it has."""
    listed = values.tolist()
    if not values.is_floating_point() or values.isfinite().all():
        return list(listed)
    return [_known(v) for v in listed]


def _known(value: Any) -> Any:
    if isinstance(value, list):
        return [_known(v) for v in value]
    return value if math.isfinite(value) else None


def _trained(algorithm: Algorithm[Any], turn: Turn, state: Any, online: Tensor) -> Any:
    """The state after the local work of the nodes that are online [S]."""
    if online.all():
        return algorithm.local(turn, state)
    rows = torch.nonzero(online).flatten()
    if not len(rows):
        return state
    worked = algorithm.local(turn.only(rows), tree.rows(state, rows))
    return tree.map(lambda old, new: old.index_copy(0, rows, new), state, worked)


def _evaluations(
    algorithm: Algorithm[Any], shard: Shard, plan: Plan, federation: Federation, state: Any, done: int
) -> list[Row]:
    """One row per hosted node: the confusion matrix of its model on its test set."""
    with shard.learner.stopwatch.phase("evaluate"):
        models = algorithm.models(state) if plan.head == "oracle" else [algorithm.model(state)]
        tests = {"": federation.tests, "validation_": federation.validations}
        rows: list[Row] = [{"kind": "evaluation", "round": done, "node": node} for node in shard.nodes.tolist()]
        for prefix, sets in tests.items():
            if sets is None:
                continue
            examined = evaluate(shard, models, sets, federation.test_of[shard.nodes], len(federation.classes))
            broken = shard.nodes[~torch.isfinite(examined.loss).numpy()]
            if len(broken):
                raise DivergedError(
                    f"the model of node {broken[0]} gives no finite loss on its test data after round {done}; try a"
                    " smaller training.lr"
                )
            for i, row in enumerate(rows):
                row[f"{prefix}confusion"] = examined.confusion[i].tolist()
                row[f"{prefix}loss"] = examined.loss[i].item()
        choice = algorithm.notes(state).get("choice")
        if choice is not None:
            rows = [{**row, "choice": c} for row, c in zip(rows, choice.tolist(), strict=True)]
        return rows


def evaluate(
    shard: Shard, models: list[dict[str, Tensor]], tests: list[Labelled], test_of: Ids, classes: int
) -> Examined:
    """Every node's model on its own test set; of several models (the oracle), the one with the
    lowest test loss. Equal models on the same test set are evaluated once."""
    results = [_examine(shard.learner, model, tests, test_of, classes) for model in models]
    best = torch.stack([r.loss for r in results]).argmin(0)
    rows = torch.arange(len(best))
    return Examined(*(torch.stack(part)[best, rows] for part in zip(*results, strict=True)))


def _examine(learner: Learner, model: dict[str, Tensor], tests: list[Labelled], test_of: Ids, classes: int) -> Examined:
    size = len(test_of)
    confusion = torch.zeros(size, classes, classes, dtype=torch.int64)
    loss = torch.zeros(size, dtype=torch.float64)
    twins: dict[tuple[int, str], list[int]] = {}
    for row, digest in enumerate(tree.digests(model, size)):
        twins.setdefault((int(test_of[row]), digest), []).append(row)
    first = np.array([group[0] for group in twins.values()])
    examined = learner.examine(tree.rows(model, torch.from_numpy(first)), tests, test_of[first], classes)
    for i, group in enumerate(twins.values()):
        confusion[group] = examined.confusion[i]
        loss[group] = examined.loss[i]
    return Examined(confusion, loss)
