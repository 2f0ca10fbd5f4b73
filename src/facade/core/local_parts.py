"""Parts of a model that stay at their node (model.local): left out of what a node publishes, untouched when it mixes.

No algorithm knows of them. While it mixes, neither messages nor its own state have such tensors; afterwards the state
has them again, as they were.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Set
from typing import Any

from torch import Tensor

from facade.core.algorithm import Algorithm
from facade.core.messages import Inbox
from facade.core.turn import Turn

Mix = Callable[[Turn, Any, Inbox], Any]


def published(algorithm: Algorithm[Any], turn: Turn, state: Any) -> Any:
    """Tree [S, ...]: the algorithm's message without local parts."""
    return _shared(algorithm.message(turn, state), turn.learner.names, turn.learner.local_names)


def mixed(algorithm: Algorithm[Any], turn: Turn, state: Any, inbox: Inbox) -> Any:
    """The state after what arrived was used."""
    return _around(algorithm, algorithm.mix, turn, state, inbox)


def finished(algorithm: Algorithm[Any], turn: Turn, state: Any, inbox: Inbox) -> Any:
    """The state after the final exchange."""
    return _around(algorithm, algorithm.finish, turn, state, inbox)


def _around(algorithm: Algorithm[Any], mix: Mix, turn: Turn, state: Any, inbox: Inbox) -> Any:
    names, local = turn.learner.names, turn.learner.local_names
    if not local:
        return mix(turn, state, inbox)
    own = {name: leaf for name, leaf in algorithm.model(state).items() if name in local}
    shared = mix(dataclasses.replace(turn, local_parts=own), _shared(state, names, local), inbox)
    return _completed(shared, state, local)


def _shared(tree: Any, names: Set[str], local: Set[str]) -> Any:
    """The tree without local tensors. Only a dict of nothing but tensors of the model is a part of one: entries of an
    algorithm's own may be called as a tensor is."""
    if isinstance(tree, Tensor) or not local:
        return tree
    if not isinstance(tree, dict):
        return type(tree)(*(_shared(part, names, local) for part in tree))
    if tree.keys() <= names:
        return {name: leaf for name, leaf in tree.items() if name not in local}
    return {name: _shared(part, names, local) for name, part in tree.items()}


def _completed(after: Any, before: Any, local: Set[str]) -> Any:
    """The tree `after` with the local tensors that it lacks and `before` has."""
    if isinstance(after, Tensor):
        return after
    if not isinstance(after, dict):
        return type(after)(*(_completed(part, old, local) for part, old in zip(after, before, strict=True)))
    kept = {name: before[name] for name in before.keys() & local - after.keys()}
    return {name: _completed(part, before[name], local) for name, part in after.items()} | kept
