"""Algorithms that train one whole model per node and differ only in how they mix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from facade.core.algorithm import Algorithm, part_of
from facade.core.message_parts import Heard, MessagePart
from facade.core.tree import Params
from facade.core.turn import Shard, Turn
from facade.learning.optimisers import Memory


class ModelState(NamedTuple):
    """The state of an algorithm that keeps one model per node."""

    model: Params
    memory: Memory
    loss: Tensor
    """[S] mean training loss of the last round."""


@dataclass(frozen=True)
class OneModel(Algorithm[ModelState]):
    """Algorithms that train one whole model per node and differ only in how they mix."""

    def init(self, shard: Shard) -> ModelState:
        model = shard.learner.init(shard.seed, 0, shard.nodes)
        return ModelState(model, shard.learner.memory(model), shard.zeros())

    def local(self, turn: Turn, state: ModelState) -> ModelState:
        return ModelState(*turn.learner.fit(state.model, state.memory, turn.samples("train")))

    def message(self, turn: Turn, state: ModelState) -> Any:
        return {"model": state.model}

    def parts(self, turn: Turn, state: ModelState, heard: Heard) -> list[MessagePart]:
        return [part_of(heard, "model", turn.losses)]

    def model(self, state: ModelState) -> Params:
        return state.model

    def notes(self, state: ModelState) -> dict[str, Tensor]:
        return {"train_loss": state.loss}
