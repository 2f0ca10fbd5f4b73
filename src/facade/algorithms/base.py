"""What an algorithm is: a frozen dataclass with a few small methods over the nodes of a shard.

Its fields are its hyper-parameters; they appear in TOML files, in `facade list` and in reports
without further work. Write one by subclassing `Algorithm`, see docs/algorithms.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor

from facade.core import tree
from facade.core.engine import Plan, Shard, Turn
from facade.core.messages import Edges, Everyone, Inbox
from facade.core.tree import Params
from facade.learning.optimisers import Memory

State = TypeVar("State")


@dataclass(frozen=True)
class Algorithm(ABC, Generic[State]):
    """One decentralized learning algorithm, for any number of hosted nodes S."""

    fresh: ClassVar[bool] = True
    """Whether it runs on a new graph every round (topology.fresh = "auto")."""
    audience: ClassVar[Literal["graph", "members"]] = "graph"
    """Who may ask a node for its message: its neighbours, or any member."""
    no_weights: ClassVar[frozenset[str]] = frozenset()
    """Top-level entries of its message that hold other numbers than weights. Peers limit the norm of all others."""

    all_reduce: bool = True
    """Whether the run ends with one exchange in which everybody hears everybody."""

    @property
    def choices(self) -> int:
        """Heads among which a node chooses by their losses; 1: nothing is scored."""
        return 1

    @property
    def all_head(self) -> bool:
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

    def finish(self, turn: Turn, state: State, inbox: Inbox) -> State:
        """The final exchange, in which everybody hears everybody (turn.round = T)."""
        return self.mix(turn, state, inbox)

    def wanted(self, turn: Turn, state: State) -> Edges | Everyone:
        """Whom the nodes want to hear this round."""
        return turn.edges

    def models(self, state: State) -> list[Params]:
        """Every model a node could deploy; only the oracle evaluation asks."""
        return [self.model(state)]

    def refuse(self, turn: Turn, message: Any) -> str | None:
        """Why a received message [1, ...] is unusable; None if it is fine."""
        return None

    def check(self, plan: Plan) -> list[str]:
        """Raise ExperimentError where this cannot run; return warnings."""
        return []


class Plain(NamedTuple):
    """The state of an algorithm that keeps one model per node."""

    model: Params
    memory: Memory
    loss: Tensor
    """[S] mean training loss of the last round."""


@dataclass(frozen=True)
class OneModel(Algorithm[Plain]):
    """Algorithms that train one whole model per node and differ only in how they mix."""

    def init(self, shard: Shard) -> Plain:
        model = shard.learner.init(shard.seed, 0, shard.nodes)
        return Plain(model, shard.learner.memory(model), shard.zeros())

    def local(self, turn: Turn, state: Plain) -> Plain:
        return Plain(*turn.learner.fit(state.model, state.memory, turn.samples("train")))

    def message(self, turn: Turn, state: Plain) -> Any:
        return {"model": state.model}

    def model(self, state: Plain) -> Params:
        return state.model

    def notes(self, state: Plain) -> dict[str, Tensor]:
        return {"train_loss": state.loss}


def joined(core: Params, head: Params) -> Params:
    """The whole model of a core and a head, names in their usual order."""
    return {name: (core | head)[name] for name in sorted(core | head)}


def chosen(heads: Params, choice: Tensor) -> Params:
    """[S, ...] of the heads [S, k, ...], the one each node chose."""
    rows = torch.arange(len(choice))
    return {name: leaf[rows, choice] for name, leaf in heads.items()}


def put(heads: Params, head: Params, where: Tensor) -> Params:
    """Heads [S, k, ...] with `head` [S, ...] written where `where` [S, k] says so."""
    return tree.where(where.bool(), tree.map(lambda leaf: leaf.unsqueeze(1), head), heads)
