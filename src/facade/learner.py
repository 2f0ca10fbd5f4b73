"""All arithmetic on models: initialise, split, train, score, evaluate.

An algorithm sees trees with one row per hosted node; the learner cuts them into blocks, gives each
block to a thread, and lets an executor do the work. Which executor it is depends on the model
alone, never on the number of nodes or threads, so results are equal to the bit however nodes are
split over threads and processes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from facade import seeds, tree
from facade.data.federation import Labelled
from facade.errors import DivergedError, ExperimentError
from facade.executor import Executor, Fit, Part
from facade.looped import Looped, find_cut, named_tensors, under
from facade.optimisers import Memory, Optimiser
from facade.stacked import MOST_WEIGHTS, Stacked, layers_of
from facade.stopwatch import Stopwatch
from facade.tree import Params

if TYPE_CHECKING:
    from facade.engine import Samples

R = TypeVar("R")


@dataclass(frozen=True)
class Inputs:
    """How stored samples become a model's input: bytes to [0, 1], then per-channel normalisation."""

    shape: tuple[int, ...]
    mean: list[float]
    std: list[float]

    def prepare(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """[..., *shape] stored values as normalised floats."""
        if x.dtype != torch.uint8:
            return x.to(dtype)
        per_channel = (-1,) + (1,) * (len(self.shape) - 1)
        mean, std = (torch.tensor(v, dtype=dtype).view(per_channel) for v in (self.mean, self.std))
        return x.to(dtype).mul_(1 / (255 * std)).sub_(mean / std)


class Fitted(NamedTuple):
    """The outcome of local training."""

    params: Params
    memory: Memory
    loss: Tensor
    """[S] mean training loss over the steps."""


class Examined(NamedTuple):
    """The outcome of an evaluation: all metrics follow from the confusion matrices."""

    confusion: Tensor
    """[S, C, C] counts, true class by predicted class."""
    loss: Tensor
    """[S] mean loss, float64."""


@dataclass(frozen=True)
class Training:
    """How nodes train: `steps` batches of `batch` samples a round."""

    steps: int
    batch: int
    optimiser: Optimiser
    init: Literal["common", "per-node"] = "common"

    @property
    def samples(self) -> int:
        """Samples a node uses in a round of training."""
        return self.steps * self.batch


class Learner:
    """One model architecture and the ways of working with stacks of it."""

    def __init__(
        self,
        factory: Callable[[], nn.Module],
        head: tuple[str, ...],
        inputs: Inputs,
        training: Training,
        *,
        dtype: torch.dtype = torch.float32,
        executor: Literal["auto", "stacked", "looped"] = "auto",
        threads: int = 0,
    ) -> None:
        self.training = training
        self.inputs = inputs
        self.dtype = dtype
        self.stopwatch = Stopwatch()
        self._factory = factory
        self._head = head
        with seeds.global_torch(0, "template"):
            self._template = factory().to(dtype)
        self._check_head()
        self.executor = self._choose(executor)
        self.threads = threads or len(os.sched_getaffinity(0))
        # Every computation runs with one intra-op thread, also when there is one worker: sums
        # inside a layer must not depend on how many threads there are.
        self._pool = ThreadPoolExecutor(self.threads, "learner", initializer=lambda: torch.set_num_threads(1))

    def _check_head(self) -> None:
        names = list(named_tensors(self._template))
        for prefix in self._head:
            if prefix != "*" and not any(under(name, (prefix,)) for name in names):
                raise ExperimentError(f"model.head = '{prefix}' names no parameter; the model has: {', '.join(names)}")

    def _choose(self, wanted: str) -> Executor:
        layers = layers_of(self._template)
        weights = sum(t.numel() for t in named_tensors(self._template).values())
        if wanted == "stacked" and layers is None:
            raise ExperimentError(
                "runtime.executor = 'stacked' needs an nn.Sequential of Flatten, Linear, ReLU and Tanh"
                " layers; this model has others: use 'auto' or 'looped'"
            )
        if layers is not None and (wanted == "stacked" or (wanted == "auto" and weights <= MOST_WEIGHTS)):
            return Stacked(layers, weights, self._head)
        example = self.inputs.prepare(torch.zeros(1, *self.inputs.shape), self.dtype)
        self.cut = find_cut(self._template, self._head, example)
        return Looped(self._template, self._head, self.cut)

    # Models

    def init(self, seed: int, draw: int, nodes: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Params:
        """[S, ...] fresh models: the same for all nodes, or one per node (training.init)."""
        if self.training.init == "common":
            return tree.repeat(self._fresh(seed, draw), len(nodes))
        return tree.stack([self._fresh(seed, draw, int(node)) for node in nodes])

    def _fresh(self, seed: int, *address: int) -> Params:
        with seeds.global_torch(seed, "init", *address):
            module = self._factory().to(self.dtype)
        return {name: t.detach().contiguous() for name, t in named_tensors(module).items()}

    def memory(self, params: Params) -> Memory:
        """What the optimiser remembers before the first step, for weights like these."""
        weights = dict(self._template.named_parameters())
        return self.training.optimiser.memory({k: v for k, v in params.items() if k in weights})

    def split(self, params: Params) -> tuple[Params, Params]:
        """(core, head) of a model."""
        head = {name: p for name, p in params.items() if under(name, self._head)}
        return {name: p for name, p in params.items() if name not in head}, head

    def module(self, params: Params) -> nn.Module:
        """A torch module with the weights of one node (no node axis), in evaluation mode."""
        with seeds.global_torch(0, "template"):
            module = self._factory().to(self.dtype)
        module.load_state_dict(params, strict=False)
        return module.eval()

    # Arithmetic

    def fit(self, params: Params, memory: Memory, samples: Samples, only: Part | None = None) -> Fitted:
        """Train every node on its samples, batch after batch; inputs stay as they were."""
        params, memory = tree.map(Tensor.clone, params), tree.map(Tensor.clone, memory)
        steps, batch = samples.count // self.training.batch, self.training.batch

        def task(block: slice) -> Tensor:
            drawn = samples.of(block)
            x = self.inputs.prepare(drawn.x, self.dtype).view(-1, steps, batch, *self.inputs.shape)
            y = drawn.y.view(-1, steps, batch)
            batches = Fit(x, y, self.training.optimiser, samples.round, only)
            return self.executor.fit(tree.rows(params, block), tree.rows(memory, block), batches)

        with self.stopwatch.phase("train"):
            loss = torch.cat(self._map(task, self._blocks(len(samples))))
            self._check(loss, params, samples)
        return Fitted(params, memory, loss)

    def score(self, core: Params, heads: Params, samples: Samples) -> Tensor:
        """Mean loss [S, k] of every head [S, k, ...] on its node's core and samples."""

        def task(block: slice) -> Tensor:
            drawn = samples.of(block)
            x = self.inputs.prepare(drawn.x, self.dtype)
            return self.executor.head_losses(tree.rows(core, block), tree.rows(heads, block), x, drawn.y)

        with self.stopwatch.phase("choose"):
            return torch.cat(self._map(_without_gradients(task), self._blocks(len(samples))))

    def compare(self, models: Params, receiver: Tensor, sender: Tensor, samples: Samples) -> Tensor:
        """Mean loss [E] of model sender[e] on the samples of node receiver[e]."""

        def task(block: slice) -> Tensor:
            rows = receiver[block]
            drawn = samples.of(slice(int(rows[0]), int(rows[-1]) + 1))[rows - rows[0]]
            x = self.inputs.prepare(drawn.x, self.dtype)
            return self.executor.losses(tree.rows(models, sender[block]), x, drawn.y)

        with self.stopwatch.phase("compare"):
            none = torch.zeros(0, dtype=self.dtype)
            return torch.cat([none, *self._map(_without_gradients(task), self._blocks(len(receiver)))])

    def examine(self, models: Params, test: Labelled, classes: int) -> Examined:
        """Every model [S, ...] on the same test samples."""

        def task(block: slice) -> Examined:
            some = tree.rows(models, block)
            size = len(next(iter(some.values())))
            counts = torch.zeros(size, classes * classes, dtype=torch.int64)
            loss = torch.zeros(size, dtype=torch.float64)
            for part in range(0, len(test), 1024):
                piece = test[part : part + 1024]
                logits = self.executor.logits(some, self.inputs.prepare(piece.x, self.dtype))
                cells = piece.y * classes + logits.argmax(-1)
                counts.scatter_add_(1, cells, torch.ones_like(cells))
                wrong = functional.cross_entropy(logits.transpose(1, 2), piece.y.expand(size, -1), reduction="none")
                loss += wrong.double().sum(1)
            return Examined(counts.view(size, classes, classes), loss / len(test))

        count = len(next(iter(models.values())))
        return tree.concat(self._map(_without_gradients(task), self._blocks(count)))

    def _blocks(self, count: int) -> list[slice]:
        size = self.executor.block
        return [slice(i, min(i + size, count)) for i in range(0, count, size)]

    def _map(self, task: Callable[[slice], R], blocks: list[slice]) -> list[R]:
        return list(self._pool.map(task, blocks))

    def _check(self, loss: Tensor, params: Params, samples: Samples) -> None:
        """Stop the run where training has left the numbers."""
        bad = ~torch.isfinite(loss)
        for leaf in params.values():
            bad |= ~torch.isfinite(leaf.flatten(1).sum(1))
        if bad.any():
            row = int(torch.nonzero(bad)[0])
            raise DivergedError(
                f"training diverged in round {samples.round + 1} at node {int(samples.nodes[row])}:"
                f" loss {float(loss[row]):g}, learning rate {self.training.optimiser.lr:g};"
                " try a smaller training.lr"
            )


def _without_gradients(task: Callable[[slice], R]) -> Callable[[slice], R]:
    """The task with autograd off; that is a setting of a thread, so it is made inside."""

    def inner(block: slice) -> R:
        with torch.no_grad():
            return task(block)

    return inner
