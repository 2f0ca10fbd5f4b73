"""What an algorithm is: a frozen dataclass with a few small methods over the nodes of a shard.

Its fields are its hyper-parameters; they appear in TOML files, in `facade list` and in reports
without further work. Write one by subclassing `Algorithm`, see docs/algorithms.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, TypeVar

import torch
from torch import Tensor

from facade.core import tree
from facade.core.message_parts import Heard, MessagePart, entry_of
from facade.core.messages import Edges, Everyone, Inbox
from facade.core.plan import Plan
from facade.core.tree import Params
from facade.core.turn import Shard, Turn

State = TypeVar("State")


@dataclass(frozen=True)
class Algorithm(ABC, Generic[State]):
    """One decentralized learning algorithm, for any number of hosted nodes S."""

    fresh: ClassVar[bool] = True
    """Whether it runs on a new graph every round (topology.fresh = "auto")."""
    audience: ClassVar[Literal["graph", "members"]] = "graph"
    """Who may ask a node for its message: its neighbours, or any member."""
    entries_without_weights: ClassVar[frozenset[str]] = frozenset()
    """Top-level entries of its message that hold other numbers than weights. Peers limit the norm of all others."""
    member_axes: ClassVar[Mapping[str, int]] = {}
    """Leaves of its state, by path (such as "seeding/origin"), that have an axis over all members of the network, and
    which axis that is. Where members come or go, it is put in their new order."""
    member_numbers: ClassVar[frozenset[str]] = frozenset()
    """Leaves of its state, by path, whose values are numbers of members; -1 stands for nobody."""

    all_reduce: bool = True
    """Whether the run ends with one exchange in which everybody hears everybody."""

    @property
    def heads_compared(self) -> int:
        """Heads among which a node chooses by their losses; 1: nothing is scored."""
        return 1

    @property
    def whole_model_is_head(self) -> bool:
        """Whether the whole model is head, whatever model.head says."""
        return False

    @abstractmethod
    def init(self, shard: Shard) -> State:
        """The state of the shard's nodes before the first round."""

    @abstractmethod
    def local(self, turn: Turn, state: State) -> State:
        """What nodes do before they publish: choose, train."""

    @abstractmethod
    def message(self, turn: Turn, state: State) -> Any:
        """Tree [S, ...]: all that ever leaves a node. Names, dtypes and shapes depend on the fields
        and on n alone, the same in every round."""

    @abstractmethod
    def mix(self, turn: Turn, state: State, inbox: Inbox) -> State:
        """Use what arrived."""

    @abstractmethod
    def model(self, state: State) -> Params:
        """[S, ...] the model each node would deploy."""

    @abstractmethod
    def notes(self, state: State) -> dict[str, Tensor]:
        """[S, ...] values recorded every round; `train_loss` at least."""

    def final_notes(self, state: State) -> dict[str, Tensor]:
        """[S, ...] values recorded after the final exchange, which is in no round."""
        return {}

    def finish(self, turn: Turn, state: State, inbox: Inbox) -> State:
        """The final exchange, in which everybody hears everybody (turn.round = T)."""
        return self.mix(turn, state, inbox)

    def wanted(self, turn: Turn, state: State) -> Edges | Everyone:
        """Whom the nodes want to hear this round."""
        return turn.edges

    def models(self, state: State) -> list[Params]:
        """Every model a node could deploy; only the oracle evaluation asks."""
        return [self.model(state)]

    def parts(self, turn: Turn, state: State, heard: Heard) -> list[MessagePart]:
        """The parts of messages that a guard may judge, and how own samples judge them; by default every entry that
        holds weights, and not at all."""
        names = [name for name in heard.messages if name not in self.entries_without_weights]
        return [part_of(heard, name) for name in names]

    def implausible(self, turn: Turn, state: State, heard: Heard) -> Tensor:
        """[S, m] A_LIE where a message says what no honest node would say: a guard drops it and no longer hears its
        sender. UNCHECKED where that cannot be told: it is used of those whose earlier messages were in order."""
        return torch.zeros_like(heard.sender)

    def refuse(self, turn: Turn, message: Any) -> str | None:
        """Why a received message [1, ...] is unusable; None if it is fine."""
        return None

    def check(self, plan: Plan) -> list[str]:
        """Raise ExperimentError where this cannot run; return warnings."""
        return []


def part_of(heard: Heard, entry: str, losses: Callable[[Any], Tensor] | None = None) -> MessagePart:
    """An entry of messages of which a node has its own, and which it averages over all that it hears."""
    rows = torch.arange(len(heard.own))
    own = heard.own.long().argmax(1)

    def held(leaf: Tensor) -> Tensor:
        return leaf[rows, own].unsqueeze(1).expand_as(leaf)

    part = tree.map(held, entry_of(heard.messages, entry))
    one_group = torch.zeros_like(heard.sender)
    return MessagePart(entry, part, one_group, heard.here if losses else torch.zeros_like(heard.here), losses)
