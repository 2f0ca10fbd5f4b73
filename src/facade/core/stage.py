"""A stage around an algorithm: something that happens in a round and that no algorithm knows of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from facade.core.algorithm import Algorithm
from facade.core.message_parts import Heard, MessagePart
from facade.core.messages import Edges, Everyone
from facade.core.plan import Plan
from facade.core.tree import Params
from facade.core.turn import Turn


@dataclass(frozen=True)
class Stage(Algorithm[Any]):
    """An algorithm around another one, whose state is the field `inner` of its own; it declares what that one does."""

    inner: Algorithm[Any] = field(kw_only=True)

    def __post_init__(self) -> None:
        declared = {name: getattr(self.inner, name) for name in ("fresh", "audience", "entries_without_weights")}
        axes, numbers = self.own_members()
        declared["member_axes"] = {f"inner/{path}": axis for path, axis in self.inner.member_axes.items()} | axes
        declared["member_numbers"] = numbers.union(f"inner/{path}" for path in self.inner.member_numbers)
        for name, value in declared.items():
            object.__setattr__(self, name, value)

    def own_members(self) -> tuple[dict[str, int], frozenset[str]]:
        """What the stage's own state says of members: as `member_axes` and `member_numbers`."""
        return {}, frozenset()

    @property
    def heads_compared(self) -> int:
        return self.inner.heads_compared

    @property
    def whole_model_is_head(self) -> bool:
        return self.inner.whole_model_is_head

    def wanted(self, turn: Turn, state: Any) -> Edges | Everyone:
        return self.inner.wanted(turn, state.inner)

    def parts(self, turn: Turn, state: Any, heard: Heard) -> list[MessagePart]:
        return self.inner.parts(turn, state.inner, heard)

    def implausible(self, turn: Turn, state: Any, heard: Heard) -> Tensor:
        return self.inner.implausible(turn, state.inner, heard)

    def model(self, state: Any) -> Params:
        return self.inner.model(state.inner)

    def models(self, state: Any) -> list[Params]:
        return self.inner.models(state.inner)

    def final_notes(self, state: Any) -> dict[str, Tensor]:
        return self.inner.final_notes(state.inner)

    def refuse(self, turn: Turn, message: Any) -> str | None:
        return self.inner.refuse(turn, message)

    def check(self, plan: Plan) -> list[str]:
        return self.inner.check(plan)
