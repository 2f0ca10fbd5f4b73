"""All arithmetic on models: initialise, split, train, score, evaluate.

An algorithm sees trees with one row per hosted node; the learner cuts them into blocks, gives each
block to a thread, and lets an executor do the work. Which executor it is depends on the model and on
[runtime], never on the number of nodes or threads, so results are equal to the bit however nodes are
split over threads and processes.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from facade.core import seeds, tree
from facade.core.tree import Params
from facade.core.types import Ids
from facade.data.samples import Holdings, Labelled, Samples
from facade.errors import DivergedError, ExperimentError
from facade.learning import rehearsal
from facade.learning.confusion import counted
from facade.learning.executor import Batches, Executor, ModelPart
from facade.learning.inputs import Inputs
from facade.learning.looped import Looped
from facade.learning.machine import cores
from facade.learning.measures import measured
from facade.learning.optimisers import Memory, Optimiser
from facade.learning.parts import divided
from facade.learning.running_statistics import running_statistics, running_variances
from facade.learning.split_point import find_split_point
from facade.learning.stacked import MOST_WEIGHTS, Stacked, head_is_last, layers_of
from facade.learning.stopwatch import Stopwatch
from facade.learning.torch_modules import copy_weights, named_tensors, under
from facade.learning.worker_threads import WorkerThreads, inside_worker, without_gradients

R = TypeVar("R")
W = TypeVar("W")


class Fitted(NamedTuple):
    """The outcome of local training."""

    params: Params
    memory: Memory
    loss: Tensor
    """[S] mean training loss over the steps."""


class Features(NamedTuple):
    """What one node's head sees of all the node's samples."""

    z: Tensor
    """[m, values]"""
    y: Tensor
    """[m] classes."""
    log_shares: Tensor | None
    """[classes] added to the outputs before the loss."""

    def adjusted(self, logits: Tensor) -> Tensor:
        """Outputs [..., classes] with what is added to them before the loss."""
        return logits if self.log_shares is None else logits + self.log_shares


class Examined(NamedTuple):
    """The outcome of an evaluation: most metrics follow from the confusion matrices."""

    confusion: Tensor
    """[S, C, C] counts, true class by predicted class."""
    loss: Tensor
    """[S] mean loss, float64."""
    others: Tensor
    """[S, p, C, C] counts of the same outputs under p other priors; none without priors."""
    measures: Tensor
    """[S, 4] what `learning.measures` makes of the outputs."""


@dataclass(frozen=True)
class Training:
    """How nodes train: `steps` batches of `batch` samples a round."""

    steps: int
    batch: int
    optimiser: Optimiser
    init: Literal["common", "per-node"] = "common"
    loss: Literal["plain", "balanced"] = "plain"
    """Cross-entropy, or that without what a node's label shares alone explain (balanced softmax)."""

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
        local: tuple[str, ...] = (),
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
        bf16: bool = False,
        executor: Literal["auto", "stacked", "looped"] = "auto",
        threads: int = 0,
    ) -> None:
        self.training = training
        self.inputs = inputs
        self.dtype = dtype
        self.device = device
        self._bf16 = bf16
        self.stopwatch = Stopwatch()
        self._factory = factory
        self._template = rehearsal.new_model(factory, dtype, device)
        self._parts = divided(self._template, head, local)
        self.names = frozenset(named_tensors(self._template))
        """Of the model's tensors."""
        self.local_names = frozenset(name for name in self.names if under(name, self._parts.local))
        """Of those that never leave their node."""
        self._local_parts: Params = {}
        self.running_statistics = frozenset(running_statistics(self._template))
        """Of those that batch normalisation estimates from what it sees, instead of training them."""
        self.variances = frozenset(running_variances(self._template))
        """Of those running statistics that are never negative."""
        self.outputs = rehearsal.outputs(self._template, inputs.blank(2, dtype, device), min(2, training.batch))
        """How many classes the model tells apart."""
        self.executor = self._choose(executor)
        self.threads = threads or cores()
        self._workers = WorkerThreads(self.threads)

    def _choose(self, wanted: str) -> Executor:
        layers = layers_of(self._template)
        if layers is not None and not head_is_last(layers, self._parts):
            layers = None
        weights = sum(t.numel() for t in named_tensors(self._template).values())
        if wanted == "stacked" and layers is None:
            raise ExperimentError(
                "runtime.executor = 'stacked' needs an nn.Sequential of Flatten, Linear, ReLU and Tanh"
                " layers with the head at its end; this model is another: use 'auto' or 'looped'"
            )
        plain = self.device == "cpu" and not self._bf16
        if wanted == "stacked" and not plain:
            raise ExperimentError("runtime.executor = 'stacked' works on the CPU in full precision; use 'looped'")
        if layers is not None and plain and (wanted == "stacked" or (wanted == "auto" and weights <= MOST_WEIGHTS)):
            return Stacked(layers, weights, self._parts, self._prepare)
        split = find_split_point(self._template, self._parts.head, self.inputs.blank(2, self.dtype, self.device))
        return Looped(self._template, self._parts, split, self._prepare, self._bf16)

    def _prepare(self, x: Tensor) -> Tensor:
        return self.inputs.prepare(x, self.dtype, self.device)

    # Models

    @property
    def has_head(self) -> bool:
        """Whether anything of the model belongs to the head."""
        return any(map(self._parts.in_head, self.names))

    @property
    def head_is_linear(self) -> bool:
        """Whether the head is one linear layer with a bias, on features that can be computed alone."""
        head, modules = self._parts.head, dict(self._template.named_modules())
        layer = modules.get(head[0]) if len(head) == 1 else None
        if type(layer) is not nn.Linear or layer.bias is None or not self.executor.gives_features:
            return False
        return all(self._parts.in_head(f"{head[0]}.{name}") for name in ("weight", "bias"))

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
        own = {name: weight.dim() for name, weight in self._template.named_parameters()}
        return self.training.optimiser.memory({k: v for k, v in params.items() if k in own}, own)

    def split(self, params: Params) -> tuple[Params, Params]:
        """(core, head) of a model; local parts are with the core, wherever they lie."""
        head = {name: p for name, p in params.items() if self._parts.in_head(name)}
        return {name: p for name, p in params.items() if name not in head}, head

    def with_local(self, parts: Params) -> Learner:
        """The same learner where nodes have these local parts [S, ...], and models that they heard have none."""
        learner = copy.copy(self)
        learner._local_parts = parts
        return learner

    def module(self, params: Params) -> nn.Module:
        """A torch module with the weights of one node (no node axis), in evaluation mode."""
        with seeds.global_torch(0, "template"):
            module = self._factory().to(self.dtype)
        copy_weights(named_tensors(module), params)  # with buffers that a state_dict leaves out
        return module.eval()

    # Arithmetic

    def fit(self, params: Params, memory: Memory, samples: Samples, only: ModelPart | None = None) -> Fitted:
        """Train every node on its samples, batch after batch; inputs stay as they were."""
        if samples.count is None:
            raise ValueError("training takes a number of batches: turn.samples(...), not turn.all_samples()")
        batch = self.training.batch
        steps = samples.count // batch
        trained, remembered = tree.map(_like, params), tree.map(_like, memory)

        def task(block: slice) -> tuple[Tensor, Tensor]:
            drawn = samples.of(block)
            x = self._prepare(drawn.x).view(-1, steps, batch, *self.inputs.shape)
            y = drawn.y.to(self.device).view(-1, steps, batch)
            nodes = samples.nodes[block].tolist()
            shares = self.log_shares(samples.data, block)
            batches = Batches(x, y, self.training.optimiser, samples.seed, samples.round, nodes, only, shares)
            moments = tree.map(Tensor.copy_, tree.rows(remembered, block), tree.rows(memory, block))
            become = tree.rows(trained, block)
            loss = self.executor.fit(tree.rows(params, block), become, moments, batches)
            return loss, self._sound(loss, become)

        with self._phase("train"):
            loss, sound = map(torch.cat, zip(*self._workers.map(task, self._blocks(len(samples))), strict=True))
            self._check(loss, sound, samples)
        return Fitted(trained, remembered, loss)

    def score(self, core: Params, heads: Params, samples: Samples, log_shares: Tensor | None = None) -> Tensor:
        """Mean loss [S, k] of every head [S, k, ...] on its node's core and samples; with `log_shares` [S, classes]
        added to the outputs, or, if none are given, what the loss says."""

        def task(block: slice) -> Tensor:
            drawn = samples.of(block)
            shares = self.log_shares(samples.data, block)
            if log_shares is not None:
                shares = log_shares[block].to(self.device, self.dtype)
            return self.executor.head_losses(
                tree.rows(core, block), tree.rows(heads, block), drawn.x, drawn.y.to(self.device), shares
            )

        with self._phase("choose"):
            return torch.cat(self._workers.map(without_gradients(task), self._blocks_of(samples)))

    def with_features(self, core: Params, samples: Samples, work: Callable[[int, Features], R]) -> list[R]:
        """What `work` makes, node by node, of (row, features). Only for heads of one linear layer."""

        def task(block: slice) -> R:
            drawn = samples.of(block)
            z = self.executor.features(tree.rows(core, block), drawn.x)[0].cpu()
            shares = self.log_shares(samples.data, block)
            return work(block.start, Features(z, drawn.y[0], None if shares is None else shares[0].cpu()))

        with self._phase("seed"):
            return self._workers.map(without_gradients(task), self._blocks_of(samples))

    def untrained(self, seed: int) -> Params:
        """The model that a run begins with at every node; also where nodes begin with others (no node axis)."""
        return self._fresh(seed, 0)

    def with_representation(self, model: Params, data: Holdings, work: Callable[[Tensor, Tensor], R]) -> list[R]:
        """What `work` makes, node by node, of what one model (no node axis) makes of a node's samples, [m, values], and
        their classes [m]: what its head would see, or, where that cannot be computed alone, its outputs."""
        one = tree.map(lambda leaf: leaf.unsqueeze(0), model)

        def task(block: slice) -> R:
            held = data.everything(block)
            if self.executor.gives_features:
                z = self.executor.features(self.split(one)[0], held.x)[0].flatten(1)
            else:
                z = self.executor.logits(one, held.x[0])[0]
            return work(z.cpu(), held.y[0])

        with self._phase("seed"):
            return self._workers.map(without_gradients(task), [slice(i, i + 1) for i in range(len(data.nodes))])

    def compare(self, models: Params, receiver: Tensor, model: Tensor, samples: Samples) -> Tensor:
        """Mean loss [E] of models[model[e]], with the receiver's own local parts, on the samples of the node in row
        receiver[e]."""

        def task(block: slice) -> Tensor:
            rows = receiver[block]
            nodes = slice(int(rows[0]), int(rows[-1]) + 1)
            drawn, shares = samples.of(nodes)[rows - rows[0]], self.log_shares(samples.data, nodes)
            shares = shares if shares is None else shares[rows - rows[0]]
            whole = tree.rows(self._local_parts, rows) | tree.rows(models, model[block])
            return self.executor.losses(whole, drawn.x, drawn.y.to(self.device), shares)

        with self._phase("compare"):
            none = torch.zeros(0, dtype=self.dtype)
            return torch.cat([none, *self._workers.map(without_gradients(task), self._blocks(len(receiver)))])

    def examine(
        self, models: Params, tests: Sequence[Labelled], test_of: Ids, priors: Sequence[Tensor] | None = None
    ) -> Examined:
        """Every model [S, ...] on its test set, by number [S]. With priors, one [nodes, 1 + p, classes] for each model,
        the outputs of a single pass are judged for every node that has the model, after each prior was added to
        them; the first one counts. Results are then those of the nodes, model after model."""

        def task(work: tuple[Labelled, Tensor]) -> Examined:
            test, rows = work
            some = tree.rows(models, _stretch(rows))
            theirs = None if priors is None else [priors[row] for row in rows.tolist()]
            pieces = [test[start : start + 1024] for start in range(0, len(test), 1024)]
            logits = [self.executor.logits(some, piece.x).cpu() for piece in pieces]
            counts = (counted(out, piece.y, theirs) for out, piece in zip(logits, pieces, strict=True))
            sums = reduce(lambda one, other: tree.map(torch.add, one, other), counts)
            measures = measured(torch.cat(logits, 1), test.y, theirs)
            return Examined(sums.confusion, sums.loss / len(test), sums.others, measures)

        of_test = [torch.from_numpy(np.nonzero(test_of == number)[0]) for number in range(len(tests))]
        work = [
            (test, rows[block]) for test, rows in zip(tests, of_test, strict=True) for block in self._blocks(len(rows))
        ]
        examined: Examined = tree.concat(self._workers.map(without_gradients(task), work))
        order = torch.cat(of_test)
        if priors is not None:
            order = order.repeat_interleave(torch.tensor([len(priors[row]) for row in order.tolist()]))
        return tree.rows(examined, torch.argsort(order, stable=True))

    def log_shares(self, data: Holdings, block: slice = slice(None)) -> Tensor | None:
        """[b, classes] what the loss takes out of the outputs of a block of nodes; None: nothing."""
        if self.training.loss == "plain":
            return None
        return data.log_shares(block, self.outputs).to(self.device, self.dtype)

    def _blocks_of(self, samples: Samples) -> list[slice]:
        """Blocks of nodes; of one node where nodes have unequal numbers of samples."""
        if samples.count is None:
            return [slice(i, i + 1) for i in range(len(samples))]
        return self._blocks(len(samples))

    def _blocks(self, count: int) -> list[slice]:
        size = self.executor.block
        return [slice(i, min(i + size, count)) for i in range(0, count, size)]

    def in_threads(self, task: Callable[[W], R], work: list[W]) -> list[R]:
        """What the task makes of each piece of work, on the learner's threads; it may itself use the learner."""
        return self._workers.map(without_gradients(task), work)

    def _phase(self, name: str) -> contextlib.AbstractContextManager[None]:
        """The time of threads side by side is that of the phase which waits for them."""
        return contextlib.nullcontext() if inside_worker() else self.stopwatch.phase(name)

    def _sound(self, loss: Tensor, params: Params) -> Tensor:
        """[b] whether losses and weights [b, ...] are finite."""
        sound = torch.isfinite(loss)
        for name, _ in self._template.named_parameters():  # buffers may hold infinities, as masks do
            sound &= torch.isfinite(params[name].reshape(len(loss), -1).sum(1))
        return sound

    def _check(self, loss: Tensor, sound: Tensor, samples: Samples) -> None:
        """Stop the run where training has left the numbers."""
        if not sound.all():
            row = int(torch.nonzero(~sound)[0])
            raise DivergedError(
                f"training diverged in round {samples.round + 1} at node {int(samples.nodes[row])}:"
                f" loss {float(loss[row]):g}, learning rate {self.training.optimiser.lr:g};"
                " try a smaller training.lr"
            )


def _like(leaf: Tensor) -> Tensor:
    """Memory for a tensor of the same kind."""
    return torch.empty_like(leaf, memory_format=torch.contiguous_format)


def _stretch(rows: Tensor) -> Tensor | slice:
    """Ascending rows; as a slice, which copies nothing, where none is left out."""
    first, last = int(rows[0]), int(rows[-1])
    return slice(first, last + 1) if last - first + 1 == len(rows) else rows
