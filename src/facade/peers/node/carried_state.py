"""A site's state under another list: what it holds about members, by their numbers, follows them to their new ones."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from facade.core import tree
from facade.core.algorithm import Algorithm
from facade.core.tree import Params
from facade.errors import FacadeError
from facade.peers.trust.membership import Membership


def carried(algorithm: Algorithm[Any], state: Params, fresh: Any, old: Membership, new: Membership) -> Any:
    """The state [1, ...], flat, that was made under the list `old`, as one under the list `new`. `fresh` is what the
    algorithm begins with under `new`: the structure, and what is held about members who are new. FacadeError for a
    leaf of which nobody can say what becomes of it."""
    leaves = tree.flatten(fresh)
    for name in sorted(leaves.keys() ^ state.keys()):
        raise FacadeError(
            f"the state of epoch {old.epoch} and that of epoch {new.epoch} do not both have a leaf '{name}'; the"
            " algorithm, or its code, has changed between the lists: go back to the earlier one"
        )
    places = _new_numbers(old, new)
    return tree.unflatten(
        {name: _leaf(algorithm, name, state[name], begun, places) for name, begun in leaves.items()}, fresh
    )


def _new_numbers(old: Membership, new: Membership) -> Tensor:
    """[old.n] the number in the new list of each member of the old one; -1 for those who left."""
    return torch.tensor([new.number(member.id) if new.has(member.id) else -1 for member in old.members])


def _leaf(algorithm: Algorithm[Any], name: str, leaf: Tensor, fresh: Tensor, places: Tensor) -> Tensor:
    """A leaf with its values and its axis over members, if it has such, renumbered."""
    if name in algorithm.member_numbers:
        nobody = torch.tensor([-1])
        leaf = torch.cat([places, nobody])[leaf.long()].to(leaf.dtype)  # -1, nobody, reads the last entry
    axis = algorithm.member_axes.get(name)
    if axis is not None and axis < leaf.dim() and leaf.shape[axis] == len(places):
        stays = places >= 0
        leaf = fresh.index_copy(axis, places[stays], leaf.index_select(axis, torch.nonzero(stays).flatten()))
    if (leaf.shape, leaf.dtype) != (fresh.shape, fresh.dtype):
        raise FacadeError(
            f"the members have changed, and '{name}' of the algorithm's state, of shape {list(leaf.shape)}, should now"
            f" have shape {list(fresh.shape)}; if it has an axis over members, let the algorithm declare it in"
            " member_axes (and in member_numbers, if its values are members' numbers)"
        )
    return leaf
