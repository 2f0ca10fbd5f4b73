"""FACADE with a say in how its heads start: what `facade` runs. Which way that is, `seeding` says; each is a file.

class-means    surveyed_facade.py    nodes first find out which of them look alike
farthest       farthest_facade.py    heads start at the nodes worst served so far
none           the same              all heads are one at first, and chance parts them: the method as published
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from facade.algorithms.facade import Facade
from facade.algorithms.farthest_facade import FarthestFacade
from facade.algorithms.surveyed_facade import SurveyedFacade
from facade.core.algorithm import Algorithm
from facade.core.message_parts import Heard, MessagePart
from facade.core.messages import Inbox
from facade.core.plan import Plan
from facade.core.tree import Params
from facade.core.turn import Shard, Turn


@dataclass(frozen=True)
class SeededFacade(Algorithm[Any]):
    """Fair clustered learning: choose the best head, train it with the core, share both."""

    entries_without_weights = frozenset({"bid"})
    member_numbers = frozenset({"seeding/origin"})
    heads: int | Literal["auto"] = 2
    """k; "auto": as many as there are groups of nodes that look alike, at most max_heads."""
    max_heads: int = 6
    """How many heads "auto" may find."""
    warmup: int = 10
    """Rounds before nodes choose heads, in which all heads are kept equal and averaged as in EL; a survey takes their
    place as long as it lasts."""
    scoring: Literal["shared", "independent"] = "shared"
    """Whether all heads are scored on the same samples; if not, chance decides between heads that are alike."""
    own_head: Literal["if-chosen", "always"] = "if-chosen"
    """Whether a node's own head counts in the mean of heads it did not choose."""
    seeding: Literal["class-means", "farthest", "none"] = "class-means"
    """How nodes come to their first heads: by how their samples of each class look, by how badly they are served so
    far, or by chance, as published."""
    revival: bool = False
    """Whether heads that have died are seeded again, every 50 rounds; needs seeding = "farthest"."""
    split: Literal["head", "all"] = "head"
    """With "all", the whole model is head, the core is empty (IFCA)."""

    def __post_init__(self) -> None:
        if self.k < 1 or self.warmup < 0:
            raise ValueError(f"heads = {self.k} and warmup = {self.warmup}: expected heads >= 1, warmup >= 0")
        if self.heads == "auto" and (self.seeding != "class-means" or self.max_heads < 2):
            raise ValueError("heads = 'auto' needs seeding = 'class-means' and max_heads >= 2")

    @property
    def k(self) -> int:
        """Heads a node has room for."""
        return self.max_heads if self.heads == "auto" else self.heads

    @property
    def heads_compared(self) -> int:
        return self.k

    @property
    def whole_model_is_head(self) -> bool:
        return self.split == "all"

    @property
    def published(self) -> Facade:
        """FACADE itself, with these settings."""
        return Facade(self.all_reduce, self.k, self.warmup, self.scoring, self.own_head)

    @functools.cached_property
    def way(self) -> Algorithm[Any]:
        """What `seeding` stands for. With one head there is nothing to start."""
        if self.seeding == "class-means" and self.k > 1 and not self.revival:
            return SurveyedFacade(self.all_reduce, self.published, self.heads == "auto")
        return FarthestFacade(self.all_reduce, self.published, self.seeding == "farthest" and self.k > 1, self.revival)

    def init(self, shard: Shard) -> Any:
        return self.way.init(shard)

    def local(self, turn: Turn, state: Any) -> Any:
        return self.way.local(turn, state)

    def message(self, turn: Turn, state: Any) -> Any:
        return self.way.message(turn, state)

    def mix(self, turn: Turn, state: Any, inbox: Inbox) -> Any:
        return self.way.mix(turn, state, inbox)

    def finish(self, turn: Turn, state: Any, inbox: Inbox) -> Any:
        return self.way.finish(turn, state, inbox)

    def parts(self, turn: Turn, state: Any, heard: Heard) -> list[MessagePart]:
        return self.way.parts(turn, state, heard)

    def implausible(self, turn: Turn, state: Any, heard: Heard) -> Tensor:
        return self.way.implausible(turn, state, heard)

    def model(self, state: Any) -> Params:
        return self.way.model(state)

    def models(self, state: Any) -> list[Params]:
        return self.way.models(state)

    def notes(self, state: Any) -> dict[str, Tensor]:
        return self.way.notes(state)

    def refuse(self, turn: Turn, message: Any) -> str | None:
        return self.way.refuse(turn, message)

    def check(self, plan: Plan) -> list[str]:
        return self.way.check(plan)
