"""How a model is divided: core, head, and what stays at its node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from facade.errors import ExperimentError
from facade.learning.running_statistics import running_statistics
from facade.learning.torch_modules import named_tensors, under

RUNNING_STATISTICS = "running-statistics"
"""Stands, among the local parts, for all running statistics of the model."""


@dataclass(frozen=True)
class Parts:
    """Parts of a model by dotted names of modules or tensors."""

    head: tuple[str, ...]
    """Where the head is; "*" is the whole model."""
    local: tuple[str, ...] = ()
    """What never leaves its node. It is one and the same under all heads, also where it lies in one."""

    def in_head(self, name: str) -> bool:
        """Whether a module or tensor belongs to the head."""
        return under(name, self.head) and not under(name, self.local)


def divided(module: nn.Module, head: Sequence[str], local: Sequence[str]) -> Parts:
    """The parts of a model; ExperimentError for names that are none of its own, and where nothing is left to share."""
    names = list(named_tensors(module))
    last = _last_layer(module)
    hint = "" if last is None else f"; its last layer is '{last}': try model.head = '{last}'"
    _check(names, "head", [name for name in head if name != "*"], hint)
    _check(names, "local", [name for name in local if name not in ("*", RUNNING_STATISTICS)])
    statistics = running_statistics(module) if RUNNING_STATISTICS in local else []
    stays = (*(name for name in local if name != RUNNING_STATISTICS), *statistics)
    if stays and all(under(name, stays) for name in names):
        raise ExperimentError(
            f"model.local = {list(local)} covers the whole model, so that nothing is shared; name a part of it, or set"
            " algorithm.name = 'local'"
        )
    return Parts(tuple(name for name in head if not under(name, stays)), stays)


def _last_layer(module: nn.Module) -> str | None:
    """The name of the layer whose weights were made last, which is the last one of most models; None without one."""
    names = [name for name, _ in module.named_parameters()]
    return names[-1].rpartition(".")[0] or None if names else None


def _check(names: Sequence[str], key: str, prefixes: Sequence[str], hint: str = "") -> None:
    for prefix in prefixes:
        if not any(under(name, (prefix,)) for name in names):
            raise ExperimentError(
                f"model.{key} = '{prefix}' names no parameter; the model has: {', '.join(names)}{hint}"
            )
