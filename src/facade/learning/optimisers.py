"""SGD and its relatives, written over dicts of tensors.

A step is the same whether a tensor belongs to one node or has a leading axis of nodes, so both
executors use this file. Memory (momentum and the like) is node state: it is kept per weight, goes
into checkpoints, and is never sent.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from facade.core.tree import Params

Memory = dict[str, Params]
"""Slot name -> weight name -> tensor that combines with the weight. Empty for plain SGD."""


@dataclass(frozen=True)
class Schedule:
    """How the learning rate moves over the rounds of a run."""

    name: str = "constant"
    rounds: int = 1
    every: int = 0
    factor: float = 0.1

    def rate(self, lr: float, round: int) -> float:
        """The learning rate of a round."""
        if self.name == "cosine":
            return lr * 0.5 * (1 + math.cos(math.pi * round / self.rounds))
        if self.name == "step":
            return lr * self.factor ** (round // self.every)
        return lr


@dataclass(frozen=True)
class Optimiser(ABC):
    """One rule for turning gradients into a step."""

    lr: float
    schedule: Schedule = Schedule()
    weight_decay: float = 0.0

    @abstractmethod
    def memory(self, params: Params, axes: Mapping[str, int]) -> Memory:
        """What a node remembers before its first step. Weights may have axes of nodes and heads in front of the
        `axes` that are their own."""

    @abstractmethod
    def step(self, weights: Params, gradients: Params, memory: Memory, round: int) -> None:
        """Update weights and memory in place for the weights that have a gradient."""

    def decayed(self, weights: Params, gradients: Params) -> Params:
        """Gradients with the pull of L2 weight decay added."""
        if not self.weight_decay:
            return gradients
        return {name: g.add(weights[name], alpha=self.weight_decay) for name, g in gradients.items()}


@dataclass(frozen=True)
class SGD(Optimiser):
    """w <- w - lr g; with momentum m: v <- m v + g, w <- w - lr v (Nesterov: g + m v)."""

    momentum: float = 0.0
    nesterov: bool = False

    def memory(self, params: Params, axes: Mapping[str, int]) -> Memory:
        if not self.momentum:
            return {}
        return {"momentum": {name: torch.zeros_like(p) for name, p in params.items()}}

    def step(self, weights: Params, gradients: Params, memory: Memory, round: int) -> None:
        rate = self.schedule.rate(self.lr, round)
        for name, gradient in self.decayed(weights, gradients).items():
            if self.momentum:
                velocity = memory["momentum"][name].mul_(self.momentum).add_(gradient)
                gradient = gradient.add(velocity, alpha=self.momentum) if self.nesterov else velocity
            weights[name].add_(gradient, alpha=-rate)


@dataclass(frozen=True)
class Adam(Optimiser):
    """Adam with betas 0.9 and 0.999; weight decay is added to the gradient."""

    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8

    def memory(self, params: Params, axes: Mapping[str, int]) -> Memory:
        moments = {slot: {name: torch.zeros_like(p) for name, p in params.items()} for slot in ("mean", "square")}
        counts = {}
        for name, p in params.items():  # one number for all of a weight: powers are expensive
            own = axes[name]
            counts[name] = p.new_zeros(*p.shape[: p.dim() - own], *([1] * own))
        return moments | {"steps": counts}

    def step(self, weights: Params, gradients: Params, memory: Memory, round: int) -> None:
        rate = self.schedule.rate(self.lr, round)
        first, second = self.betas
        for name, gradient in self.decayed(weights, gradients).items():
            mean = memory["mean"][name].mul_(first).add_(gradient, alpha=1 - first)
            square = memory["square"][name].mul_(second).addcmul_(gradient, gradient, value=1 - second)
            steps = memory["steps"][name].add_(1)
            size = square.div(1 - second**steps).sqrt_().add_(self.epsilon)
            weights[name].sub_(rate * mean / (1 - first**steps) / size)
