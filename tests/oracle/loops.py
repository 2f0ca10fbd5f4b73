"""The algorithms as slow loops, one node and one weight tensor at a time, written from their
descriptions and not from the library's code. Shared with the library are only the addressed draws,
the graphs, and which node holds which images; all arithmetic is torch's autograd in float64.

Every function returns the states before each round, before the final exchange, and after it: a
list over these moments of lists over nodes.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional

from facade.core import seeds
from facade.core.topology import TOPOLOGIES, Graph
from facade.data.federation import Federation
from facade.experiment.config import Experiment
from facade.learning import models

Model = dict[str, Tensor]
Node = dict[str, Any]
Moments = list[list[Node]]


class World:
    """What all algorithms share: data, draws, graphs, and training of one model on one node."""

    def __init__(self, experiment: Experiment, federation: Federation, *, fresh: bool) -> None:
        self.seed = experiment.seed
        self.n = experiment.n
        self.rounds = experiment.training.rounds
        self.steps = experiment.training.steps
        self.batch = experiment.training.batch
        self.lr = experiment.training.lr
        self.init = experiment.training.init
        self.balanced = experiment.training.loss == "balanced"
        self.local = tuple(experiment.model.local)
        self.network = experiment.network
        self.federation = federation
        self._make = models.factory(experiment.model.name, federation.shape, len(federation.classes))
        self._module = self._make().double()
        topology = TOPOLOGIES[experiment.topology.name]
        fields = {"degree": experiment.topology.degree} if "degree" in topology.__dataclass_fields__ else {}
        self._topology = topology(**fields)
        self.fresh = fresh if experiment.topology.fresh == "auto" else experiment.topology.fresh

    def fresh_model(self, draw: int, node: int) -> Model:
        address = (draw,) if self.init == "common" else (draw, node)
        with seeds.global_torch(self.seed, "init", *address):
            module = self._make().double()
        return {name: weight.detach().clone() for name, weight in module.named_parameters()}

    def stays(self, model: Model) -> Model:
        """What of a model never leaves its node."""
        return {name: weight for name, weight in model.items() if name.startswith(self.local)}

    def samples(self, purpose: str, round: int, node: int, count: int) -> tuple[Tensor, Tensor]:
        rows = self.federation.training.rows[node]
        picks = seeds.picks(self.seed, purpose, round, np.array([node]), len(rows), count)[0]
        return self._rows(rows[picks])

    def _rows(self, numbers: np.ndarray) -> tuple[Tensor, Tensor]:
        taken = torch.from_numpy(numbers)
        x = self._normalised(self.federation.training.samples.x[taken])
        return x, self.federation.training.samples.y[taken]

    def _normalised(self, x: Tensor) -> Tensor:
        mean, std = (torch.tensor(v, dtype=torch.float64).view(1, -1, 1, 1) for v in self._normal())
        return (x.double() / 255 - mean) / std

    def _normal(self) -> tuple[list[float], list[float]]:
        return self.federation.mean, self.federation.std

    def loss(self, model: Model, x: Tensor, y: Tensor, node: int) -> Tensor:
        return functional.cross_entropy(functional_call(self._module, model, (x,)) + self.log_shares(node), y)

    def log_shares(self, node: int) -> Tensor:
        """Per class, the logarithm of how frequent it is at a node against the most frequent one, each counted half
        a row more; zeros where the loss is plain."""
        if not self.balanced:
            return torch.zeros(len(self.federation.classes), dtype=torch.float64)
        labels = self.federation.training.samples.y[torch.from_numpy(self.federation.training.rows[node])].tolist()
        counts = [labels.count(c) + 0.5 for c in range(len(self.federation.classes))]
        return torch.tensor([math.log(count / max(counts)) for count in counts], dtype=torch.float64)

    def predictions(self, model: Model, node: int) -> tuple[list[list[int]], list[list[int]]]:
        """On a node's test set, true class by predicted class: for equal label shares, and with its own added."""
        test = self.federation.tests[self.federation.test_of[node]]
        classes = range(len(self.federation.classes))
        flat, own = ([[0 for _ in classes] for _ in classes] for _ in range(2))
        for x, truth in zip(test.x, test.y.tolist(), strict=True):
            outputs = functional_call(self._module, model, (self._normalised(x.unsqueeze(0)),))[0].tolist()
            shares = self.log_shares(node).tolist()
            flat[truth][max(classes, key=lambda c: outputs[c])] += 1
            own[truth][max(classes, key=lambda c: outputs[c] + shares[c])] += 1
        return flat, own

    def everything(self, node: int) -> tuple[Tensor, Tensor]:
        """All rows of a node."""
        return self._rows(self.federation.training.rows[node])

    def features(self, core: Model, x: Tensor) -> Tensor:
        """What the head would see."""
        seen: list[Tensor] = []
        hook = self._module.head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
        functional_call(self._module, core, (x,))
        hook.remove()
        return seen[0].detach()

    def mean_loss(self, model: Model, purpose: str, round: int, node: int) -> float:
        with torch.no_grad():
            return float(self.loss(model, *self.samples(purpose, round, node, self.steps * self.batch), node))

    def trained(
        self, model: Model, purpose: str, round: int, node: int, steps: int, names: set[str] | None = None
    ) -> Model:
        x, y = self.samples(purpose, round, node, steps * self.batch)
        for step in range(steps):
            part = slice(step * self.batch, (step + 1) * self.batch)
            weights = {name: w.clone().requires_grad_() for name, w in model.items()}
            self.loss(weights, x[part], y[part], node).backward()
            model = {
                name: w.detach() - self.lr * w.grad if names is None or name in names else w.detach()
                for name, w in weights.items()
            }
        return model

    @functools.cache  # noqa: B019
    def graph(self, round: int) -> Graph:
        return self._topology.draw(self.n, self.seed, round if self.fresh else 0)

    def neighbours(self, round: int, node: int) -> list[int]:
        graph = self.graph(round)
        if graph.everyone:
            return [other for other in range(self.n) if other != node]
        return sorted(int(s) for r, s in zip(graph.receiver, graph.sender, strict=True) if r == node)

    def degree(self, round: int, node: int) -> int:
        return len(self.neighbours(round, node))

    def online(self, round: int, node: int) -> bool:
        drawn = seeds.uniform(self.seed, "offline", round, np.array([node]), 1)[0, 0]
        return bool(drawn >= self.network.offline)

    def arrived(self, round: int, node: int, asked: list[int]) -> list[int]:
        """Of the peers asked, in ascending order, those whose message arrives."""
        heard = []
        for peer in sorted(asked):
            lost = seeds.pair_uniform(self.seed, "loss", round, np.array([peer]), np.array([node]))[0]
            if self.online(round, peer) and self.online(round, node) and lost >= self.network.loss:
                heard.append(peer)
        return heard


def average(trees: list[Model]) -> Model:
    total = {name: torch.zeros_like(leaf) for name, leaf in trees[0].items()}
    for tree in trees:
        for name in total:
            total[name] = total[name] + tree[name]
    return {name: leaf / len(trees) for name, leaf in total.items()}


def in_head(name: str) -> bool:
    return name.startswith("head.")


def core_of(model: Model) -> Model:
    return {name: w for name, w in model.items() if not in_head(name)}


def head_of(model: Model) -> Model:
    return {name: w for name, w in model.items() if in_head(name)}


def local(world: World) -> Moments:
    nodes = [{"model": world.fresh_model(0, i)} for i in range(world.n)]
    moments = [nodes]
    for t in range(world.rounds):
        nodes = [
            {"model": world.trained(node["model"], "train", t, i, world.steps)} if world.online(t, i) else node
            for i, node in enumerate(nodes)
        ]
        moments.append(nodes)
    return moments


def el(world: World, all_reduce: bool = True) -> Moments:
    nodes = [{"model": world.fresh_model(0, i)} for i in range(world.n)]
    moments = [nodes]
    for t in range(world.rounds):
        sent = [world.trained(node["model"], "train", t, i, world.steps) for i, node in enumerate(nodes)]
        after = []
        for i in range(world.n):
            members = sorted([i, *world.arrived(t, i, world.neighbours(t, i))])
            mixed = {"model": average([sent[j] for j in members]) | world.stays(sent[i])}
            after.append(mixed if world.online(t, i) else nodes[i])
        nodes = after
        moments.append(nodes)
    if all_reduce:
        everyone = average([node["model"] for node in nodes])
        moments.append([{"model": everyone | world.stays(node["model"])} for node in nodes])
    return moments


def dpsgd(world: World) -> Moments:
    nodes = [{"model": world.fresh_model(0, i)} for i in range(world.n)]
    moments = [nodes]
    for t in range(world.rounds):
        sent = [world.trained(node["model"], "train", t, i, world.steps) for i, node in enumerate(nodes)]
        after = []
        for i in range(world.n):
            weights = {
                j: 1 / (max(world.degree(t, i), world.degree(t, j)) + 1)
                for j in world.arrived(t, i, world.neighbours(t, i))
            }
            weights[i] = 1 - sum(weights.values())
            mixed = {name: sum(w * sent[j][name] for j, w in weights.items()) for name in sent[i]}
            after.append({"model": mixed} if world.online(t, i) else nodes[i])
        nodes = after
        moments.append(nodes)
    moments.append([{"model": average([node["model"] for node in nodes])} for _ in nodes])
    return moments


def deprl(world: World, core_steps: int) -> Moments:
    names = set(world.fresh_model(0, 0))
    heads = {name for name in names if in_head(name)}
    nodes = [{"model": world.fresh_model(0, i)} for i in range(world.n)]
    moments = [nodes]
    for t in range(world.rounds):
        own = []
        for i, node in enumerate(nodes):
            model = world.trained(node["model"], "train", t, i, world.steps, heads)
            own.append(world.trained(model, "core", t, i, core_steps, names - heads))
        after = []
        for i in range(world.n):
            members = sorted([i, *world.arrived(t, i, world.neighbours(t, i))])
            core = average([core_of(own[j]) for j in members])
            after.append({"model": core | head_of(own[i])} if world.online(t, i) else nodes[i])
        nodes = after
        moments.append(nodes)
    core = average([core_of(node["model"]) for node in nodes])
    moments.append([{"model": core | head_of(node["model"])} for node in nodes])
    return moments


def dac(world: World, two_hop: bool, a: float, b: float, all_reduce: bool) -> Moments:
    """Similarities are float32 numbers by peer; `told` holds by unmet node (bridge, its word)."""
    nodes: list[Node] = [{"model": world.fresh_model(0, i), "measured": {}, "told": {}} for i in range(world.n)]
    moments = [nodes]
    for t in range(world.rounds):
        tau = 2 * a / (1 + math.exp(-b * t)) - a + 1
        sent = [
            {"model": world.trained(node["model"], "train", t, i, world.steps), "scores": dict(node["measured"])}
            for i, node in enumerate(nodes)
        ]
        after = []
        for i, node in enumerate(nodes):
            heard = world.arrived(t, i, _drawn_peers(world, t, i, node, tau))
            measured, told = dict(node["measured"]), dict(node["told"])
            for j in heard:
                loss = world.mean_loss(sent[j]["model"] | world.stays(sent[i]["model"]), "compare", t, i)
                measured[j] = np.float32(1 / max(loss, 1e-6))
            for bridge in heard if two_hop else []:
                for j, score in sent[bridge]["scores"].items():
                    before = told.get(j, (None, None))[0]
                    if before is None or before == bridge or measured[bridge] > measured[before]:
                        told[j] = (bridge, score)
            members = sorted([i, *heard])
            model = average([sent[j]["model"] for j in members]) | world.stays(sent[i]["model"])
            mixed = {"model": model, "measured": measured, "told": told}
            after.append(mixed if world.online(t, i) else node)
        nodes = after
        moments.append(nodes)
    if all_reduce:
        everyone = average([node["model"] for node in nodes])
        moments.append([{**node, "model": everyone | world.stays(node["model"])} for node in nodes])
    return moments


def _drawn_peers(world: World, round: int, node: int, state: Node, tau: float) -> list[int]:
    noise = seeds.uniform(world.seed, "dac", round, np.array([node]), world.n)[0]
    keys = {}
    for j in range(world.n):
        if j != node:
            word = state["told"][j][1] if j in state["told"] else 0.0
            similar = state["measured"].get(j, word)
            keys[j] = tau * float(similar) - math.log(-math.log(noise[j]))
    ranked = sorted(keys, key=lambda j: -keys[j])
    return ranked[: world.degree(round, node)]
