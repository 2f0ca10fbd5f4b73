"""What an attack is: what some nodes do instead of what the algorithm says. It is simulated; no real site plays one.

Write one by subclassing `Attack`, see docs/robustness.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from facade.core import seeds, tree
from facade.core.algorithm import Algorithm
from facade.core.turn import Turn
from facade.data.samples import Labelled


class Scene(NamedTuple):
    """What attackers see when they are about to publish. Trees and tensors [S, ...] are of all nodes that this process
    hosts."""

    turn: Turn
    algorithm: Algorithm[Any]
    """With its guard, which attackers know."""
    state: Any
    """Tree [S, ...]: the algorithm's."""
    messages: Any
    """Tree [S, ...]: what the algorithm would have nodes publish."""
    bad: Tensor
    """[S] which of them are attackers."""
    final: bool
    """Whether this is the final exchange."""

    @property
    def weights(self) -> Any:
        """The entries of the messages that hold weights."""
        others = self.algorithm.entries_without_weights
        return {k: part for k, part in self.messages.items() if k not in others and not isinstance(part, Tensor)}

    def noise(self, like: Any) -> Any:
        """Tree [S, ...]: standard normal numbers in the form of `like`, addressed by round and node."""
        nodes, seed, round = self.turn.shard.nodes, self.turn.shard.seed, self.turn.round

        def drawn(path: str, leaf: Tensor) -> Tensor:
            count = leaf[0].numel()
            raw = torch.from_numpy(seeds.uniform(seed, f"attack/{path}", round, nodes, 2 * count))
            radius, angle = (-2 * raw[:, :count].log()).sqrt(), 2 * torch.pi * raw[:, count:]
            return (radius * angle.cos()).view_as(leaf).to(leaf.dtype)

        return tree.unflatten({path: drawn(path, leaf) for path, leaf in tree.flatten(like).items()}, like)


@dataclass(frozen=True)
class Attack:
    """What attackers do; the fields say how strongly. What they mix themselves is as the algorithm says."""

    omniscient: ClassVar[bool] = False
    """Whether attackers see the messages of all nodes, so that one process must host them all."""
    silent: ClassVar[bool] = False
    """Whether attackers send nothing."""

    def begin(self, state: Any) -> Any:
        """Tree [S, ...]: what attackers remember at first, given the algorithm's first state."""
        return {}

    def remember(self, scene: Scene, memory: Any) -> Any:
        """What they remember after a round in which they did not attack yet."""
        return memory

    def poisoned(self, samples: Labelled) -> Labelled:
        """What an attacker makes of its training samples."""
        return samples

    def sent(self, scene: Scene, memory: Any) -> Any:
        """Tree [S, ...]: what is published instead; only the attackers' rows are used."""
        return scene.messages


def norm(part: Any) -> Tensor:
    """[S] float64 norms of a tree [S, ...] over all its leaves."""
    squares = [leaf.flatten(1).double().square().sum(1) for _, leaf in sorted(tree.flatten(part).items())]
    return torch.stack(squares).sum(0).sqrt()


def scaled(part: Any, factor: float | Tensor) -> Any:
    """A tree [S, ...] times a number, or one for each node [S]."""

    def times(leaf: Tensor) -> Tensor:
        if isinstance(factor, float):
            return leaf * factor
        return leaf * factor.view(-1, *([1] * (leaf.dim() - 1))).to(leaf.dtype)

    return tree.map(times, part)
