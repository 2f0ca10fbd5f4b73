"""What an executor is: the arithmetic of a block of nodes on one thread."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Literal

from torch import Tensor

from facade.core.tree import Params
from facade.learning.optimisers import Memory, Optimiser

ModelPart = Literal["core", "head"]

Prepare = Callable[[Tensor], Tensor]
"""Makes stored inputs [..., *shape] what a model takes."""


@dataclass(frozen=True)
class Batches:
    """The batches of a block of b nodes and what to do with them."""

    x: Tensor
    """[b, steps, batch, ...] normalised inputs."""
    y: Tensor
    """[b, steps, batch] labels."""
    optimiser: Optimiser
    seed: int
    round: int
    nodes: list[int]
    """[b] ids, to address what is random inside the model."""
    only: ModelPart | None = None
    """The part to train; None trains both. A frozen part runs in evaluation mode."""
    log_shares: Tensor | None = None
    """[b, classes] added to the outputs before the loss; None: the loss is that of the outputs as they are."""


class Executor(ABC):
    """Trains and evaluates a block of nodes. Results do not depend on what else is in the block,
    nor on the thread; the two executors agree up to rounding, not to the bit.

    Training gets normalised inputs; everything else gets inputs as they are stored, and normalises them as they
    are used: of all samples of a node, that may be more than memory holds."""

    name: str
    block: int
    """Nodes per task."""
    features_once: bool = True
    """Whether heads are scored on features computed once; if not, by passes through the whole model."""
    gives_features: bool = True
    """Whether what the head sees can be computed alone, and what it gives is the model's output."""

    @abstractmethod
    def fit(self, start: Params, trained: Params, memory: Memory, batches: Batches) -> Tensor:
        """Train models from the weights `start` [b, ...] and write what they become into `trained` [b, ...], and
        memory [b, ...] in place; the mean loss over the steps, [b]."""

    @abstractmethod
    def losses(self, params: Params, x: Tensor, y: Tensor, log_shares: Tensor | None = None) -> Tensor:
        """Mean loss [b] of model i on its stored samples x [b, m, ...], in evaluation mode; `log_shares` as in
        `Batches`."""

    @abstractmethod
    def head_losses(
        self, core: Params, heads: Params, x: Tensor, y: Tensor, log_shares: Tensor | None = None
    ) -> Tensor:
        """Mean loss [b, k] of every head [b, k, ...] on top of its node's core. Heads go one by one
        through the same operation, so equal heads get equal losses."""

    @abstractmethod
    def features(self, core: Params, x: Tensor) -> Tensor:
        """[b, m, values] that each node's head sees of its stored samples x [b, m, ...]. Only for models
        whose head is one linear layer."""

    @abstractmethod
    def logits(self, params: Params, x: Tensor) -> Tensor:
        """[b, m, classes] of every model on the same stored inputs x [m, ...], in evaluation mode."""


_CACHED_VALUES = 32 * 3 * 32 * 32


def in_chunks(x: Tensor) -> Iterator[Tensor]:
    """Parts of x along its first axis that stay in a core's cache: 32 images of 32x32, or alike."""
    size = max(8, _CACHED_VALUES // prod(x.shape[1:]))
    return (x[i : i + size] for i in range(0, len(x), size))
