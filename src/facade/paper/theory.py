"""The theory, tested: on a strongly convex problem every cluster's models approach its optimum at least
as fast as the paper's bound says, if heads start close enough; and not if they do not.

The problem is L2-regularised softmax regression on the `synthetic` rows, with full local batches, one
step a round and eta = 1/L. Per cluster j, theta*_j is the minimiser of its nodes' common objective.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from facade.analysis.metrics import separated
from facade.core import seeds
from facade.core.engine import drive, play
from facade.core.messages import Inbox, Post
from facade.data.synthetic import ROWS, convexity, optimum
from facade.experiment.config import Experiment
from facade.experiment.setup import Setup, set_up
from facade.learning.torch_threads import one_intra_op_thread
from facade.runtimes.local import among_all

Floats = NDArray[np.float64]

L2 = 0.5
ALPHA = 0.25
"""How far inside the allowed radius heads start: (1/2 - ALPHA) sqrt(lambda / L) Delta."""
CLUSTERS = "12:4"
DEGREES = (2, 4, 8, None)
"""Peers heard per round; None: everyone."""


class Problem(NamedTuple):
    """The constants of the theory, from the data."""

    optima: list[Floats]
    """theta*_j [classes, values + 1], the bias last."""
    smoothness: float
    """L: the largest of any node, so that eta = 1/L suits all."""
    convexity: float
    """lambda"""
    distance: float
    """Delta: the smallest distance between two optima."""
    smallest: float
    """p: the smallest cluster's share of the nodes."""

    @property
    def radius(self) -> float:
        """How far from its optimum a head may start."""
        return float((0.5 - ALPHA) * np.sqrt(self.convexity / self.smoothness) * self.distance)

    @property
    def factor(self) -> float:
        """1 - p lambda / 8L, the bound's contraction per round."""
        return 1 - self.smallest * self.convexity / (8 * self.smoothness)


@dataclass(frozen=True)
class Descent:
    """One run: how far every cluster's models were from its optimum."""

    degree: int | None
    inside: bool
    """Whether heads started within the radius."""
    distances: Floats
    """[T + 1, G] the largest over a cluster's nodes."""
    bound: Floats
    """[T + 1]"""
    contraction: Floats
    """[T + 1] the bound without what rounds add."""
    floor: Floats
    """[G] epsilon_0: what one round can add, measured at the optimum itself."""
    shared: bool
    """Whether two clusters share a head in the end."""

    @property
    def holds(self) -> bool:
        """Whether no distance was ever above the bound."""
        return bool((self.distances <= self.bound[:, None] * (1 + 1e-9)).all())

    @property
    def rates(self) -> Floats:
        """[G] the measured contraction per round, from the rounds before the floor is near."""
        rates = []
        for distances in self.distances.T:
            still = np.nonzero(distances > max(2 * distances.min(), 1e-12))[0]
            last = int(still[-1]) if len(still) else 0
            rates.append((distances[last] / distances[0]) ** (1 / last) if last else np.nan)
        return np.array(rates)


def problem(setup: Setup) -> Problem:
    """The optima by Newton's method to 1e-10, and the constants."""
    cluster = _cluster(setup)
    samples, rows = setup.federation.training.samples, setup.federation.training.rows
    x, y = samples.x.numpy().astype(np.float64), samples.y.numpy()
    optima = []
    for c in range(int(cluster.max()) + 1):
        mine = np.concatenate([rows[node] for node in np.nonzero(cluster == c)[0]])
        best = optimum(x[mine], y[mine], len(setup.federation.classes), L2)
        optima.append(np.concatenate([best.weight, best.bias[:, None]], 1))
    smoothness = max(convexity(x[mine], L2)[0] for mine in rows)
    gaps = [float(np.linalg.norm(a - b)) for i, a in enumerate(optima) for b in optima[:i]]
    return Problem(optima, smoothness, L2, min(gaps), float(np.bincount(cluster).min() / len(cluster)))


def _cluster(setup: Setup) -> NDArray[np.int64]:
    if setup.federation.cluster is None:
        raise AssertionError("synthetic data know their clusters")
    return setup.federation.cluster


def describe(degree: int | None, rounds: int, lr: float, seed: int) -> Experiment:
    """A run of the theory as an experiment; where its heads start is not part of it."""
    topology = {"name": "complete"} if degree is None else {"name": "regular", "degree": degree}
    return Experiment.of(
        {
            "name": "theory",
            "seed": seed,
            "data": {"source": "synthetic", "clusters": CLUSTERS, "skew": "none", "partition": "natural"},
            "model": {"name": "softmax"},
            "algorithm": {"name": "facade", "heads": 2, "warmup": 0, "split": "all", "seeding": "none"},
            "topology": topology,
            "training": {"rounds": rounds, "steps": 1, "batch": ROWS, "lr": lr, "weight_decay": L2},
            "evaluation": {"every": rounds},
            "runtime": {"dtype": "float64"},
        }
    )


def descend(degree: int | None, rounds: int, seed: int = 1, inside: bool = True) -> tuple[Problem, Descent]:
    """Run FACADE from heads within the radius or, as a control, with one head so far away that nobody
    ever chooses it."""
    facts = problem(set_up(describe(degree, 1, 0.1, seed)))
    setup = set_up(describe(degree, rounds, 1 / facts.smoothness, seed))
    heads = starts(facts, seed, inside)
    with one_intra_op_thread():
        distances, shared = _distances(setup, facts, heads)
    floor = _pushes(setup, facts)
    factor, t = facts.factor, np.arange(rounds + 1)
    # What rounds add is contracted too: a geometric series.
    contraction = factor**t * distances[0].max()
    bound = contraction + floor.max() * (1 - factor**t) / (1 - factor)
    return facts, Descent(degree, inside, distances, bound, contraction, floor, shared)


def starts(facts: Problem, seed: int, inside: bool) -> list[Floats]:
    """Per head, where it starts: at the radius around its optimum, in a direction drawn by the seed."""
    heads = []
    for j, best in enumerate(facts.optima):
        drawn = seeds.uniform(seed, "theory", j, np.zeros(1, np.int64), best.size)[0].reshape(best.shape) - 0.5
        heads.append(best + facts.radius * drawn / np.linalg.norm(drawn))
    if not inside:
        middle = np.mean(facts.optima, 0)
        near, far = (head - best for head, best in zip(heads, facts.optima, strict=True))
        heads = [middle + near, middle + 10 * facts.distance / facts.radius * far]
    return heads


def _distances(setup: Setup, facts: Problem, heads: list[Floats]) -> tuple[Floats, bool]:
    """[T + 1, G] distance of the nearest head before the first round, then after every round the
    largest of a node's chosen head; and whether two clusters share a head in the end."""
    cluster, shard = _cluster(setup), setup.shard(np.arange(setup.federation.n))
    seen = [np.array([min(np.linalg.norm(head - best) for head in heads) for best in facts.optima])]
    choices: list[NDArray[np.int64]] = []

    def exchange(post: Post) -> Inbox:
        if post.round:
            seen.append(_apart(_chosen(post.state.facade), facts, cluster))
            choices.append(post.state.facade.choice.numpy())
        return among_all(shard)(post)

    drive(play(setup.algorithm, shard, setup.plan, setup.federation, (0, _started(setup, heads))), exchange)
    return np.stack(seen), not separated(choices[-1], cluster)


def _apart(thetas: list[Floats], facts: Problem, cluster: NDArray[np.int64]) -> Floats:
    apart = np.array([np.linalg.norm(theta - facts.optima[c]) for theta, c in zip(thetas, cluster, strict=True)])
    return np.array([apart[cluster == c].max() for c in range(int(cluster.max()) + 1)])


def _started(setup: Setup, heads: list[Floats]) -> Any:
    """The algorithm's first state, with the given heads at every node."""
    shard = setup.shard(np.arange(setup.federation.n))
    state = setup.algorithm.init(shard)
    stacked = torch.from_numpy(np.stack(heads)).expand(setup.federation.n, -1, -1, -1)
    weight, bias = stacked[..., :-1].clone(), stacked[..., -1].clone()
    given = {name: weight if name.endswith("weight") else bias for name in state.facade.heads}
    return state._replace(facade=state.facade._replace(heads=given))


def _chosen(state: Any) -> list[Floats]:
    """Per node, the head it chose as [classes, values + 1]."""
    weight = next(leaf for name, leaf in state.heads.items() if name.endswith("weight"))
    bias = next(leaf for name, leaf in state.heads.items() if name.endswith("bias"))
    rows = torch.arange(len(state.choice))
    both = torch.cat([weight, bias.unsqueeze(-1)], -1)[rows, state.choice]
    return [theta.numpy() for theta in both]


def _pushes(setup: Setup, facts: Problem) -> Floats:
    """[G] epsilon_0: how far a round moves any node of a cluster away from the optimum when everyone
    starts there, the largest over the rounds' graphs. It is 0 where everyone hears everyone."""
    cluster, n = _cluster(setup), setup.federation.n
    steps = np.stack([_step(setup, facts, node) for node in range(n)])
    alike = cluster[:, None] == cluster
    largest = np.zeros(n)
    for round in range(setup.plan.rounds):
        graph = setup.plan.graph(round)
        hears = np.ones((n, n), np.bool_) if graph.everyone else np.eye(n, dtype=np.bool_)
        if not graph.everyone:
            hears[graph.into(np.arange(n))] = True
        hears &= alike
        mixed = hears.astype(np.float64) @ steps / hears.sum(1, keepdims=True)
        largest = np.maximum(largest, np.linalg.norm(mixed, axis=1))
    return np.array([largest[cluster == c].max() for c in range(len(facts.optima))])


def _step(setup: Setup, facts: Problem, node: int) -> Floats:
    """The step of gradient descent that a node takes at its cluster's optimum, flat."""
    training, theta = setup.federation.training, facts.optima[_cluster(setup)[node]]
    rows = training.rows[node]
    picked = training.samples[torch.from_numpy(rows)]
    x = np.concatenate([picked.x.numpy().astype(np.float64), np.ones((len(rows), 1))], 1)
    logits = x @ theta.T
    share = np.exp(logits - logits.max(1, keepdims=True))
    share /= share.sum(1, keepdims=True)
    share[np.arange(len(rows)), picked.y.numpy()] -= 1
    return np.asarray((share.T @ x / len(rows) + L2 * theta) / facts.smoothness).ravel()
