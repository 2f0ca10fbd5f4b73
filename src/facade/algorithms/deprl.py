"""DePRL: a shared core, and a head that never leaves its node.

Xiong et al., "DePRL: Achieving Linear Convergence Speedup in Personalized Decentralized Learning with Shared
Representations", AAAI 2024.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from facade.algorithms.core_and_heads import joined
from facade.core.algorithm import Algorithm, part_of
from facade.core.message_parts import Heard, MessagePart, side_by_side
from facade.core.messages import Inbox, mean
from facade.core.tree import Params
from facade.core.turn import Shard, Turn
from facade.errors import ExperimentError
from facade.learning.optimisers import Memory


class DeprlState(NamedTuple):
    """Per node: a core that is averaged and a head that is not."""

    core: Params
    head: Params
    memory: Memory
    loss: Tensor
    """[S] mean training loss of the last round."""


@dataclass(frozen=True)
class DePRL(Algorithm[DeprlState]):
    """Personal heads: train the head, then the core, and average cores on one fixed graph."""

    fresh = False
    core_steps: int = 1
    """SGD steps on the core per round; equal to training.steps it is equal work."""

    def __post_init__(self) -> None:
        if self.core_steps < 1:
            raise ValueError(f"core_steps = {self.core_steps}: expected at least 1")

    def init(self, shard: Shard) -> DeprlState:
        model = shard.learner.init(shard.seed, 0, shard.nodes)
        core, head = shard.learner.split(model)
        if not core or not head:
            raise ExperimentError(
                "deprl shares the core and keeps the head, but here one of them is empty;"
                " set model.head to the prefix of a part of the model"
            )
        return DeprlState(core, head, shard.learner.memory(model), shard.zeros())

    def local(self, turn: Turn, state: DeprlState) -> DeprlState:
        learner = turn.learner
        model = joined(state.core, state.head)
        heads = learner.fit(model, state.memory, turn.samples("train"), only="head")
        cores = learner.fit(heads.params, heads.memory, turn.samples("core", self.core_steps), only="core")
        return DeprlState(*learner.split(cores.params), cores.memory, heads.loss)

    def message(self, turn: Turn, state: DeprlState) -> Any:
        return {"core": state.core}

    def mix(self, turn: Turn, state: DeprlState, inbox: Inbox) -> DeprlState:
        return state._replace(core=mean(inbox, inbox.pool["core"]))

    def parts(self, turn: Turn, state: DeprlState, heard: Heard) -> list[MessagePart]:
        return [part_of(heard, "core", lambda cores: turn.losses(joined(cores, side_by_side(state.head, cores))))]

    def model(self, state: DeprlState) -> Params:
        return joined(state.core, state.head)

    def notes(self, state: DeprlState) -> dict[str, Tensor]:
        return {"train_loss": state.loss}
