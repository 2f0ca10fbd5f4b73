"""A torch module's tensors by name, and chains of layers."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from facade.core.tree import Params


def named_tensors(module: nn.Module) -> Params:
    """Weights and float buffers: what is trained, sent and averaged. Counters stay at home."""
    buffers = {name: b for name, b in module.named_buffers() if b.is_floating_point()}
    return {**dict(module.named_parameters()), **buffers}


def under(name: str, prefixes: tuple[str, ...]) -> bool:
    """Whether a dotted name lies at or below one of the prefixes; "*" covers everything."""
    return any(p == "*" or name == p or name.startswith(p + ".") for p in prefixes)


def copy_weights(tensors: Params, weights: Params) -> None:
    """Write weights into the tensors of the same names."""
    with torch.no_grad():
        for name, weight in weights.items():
            tensors[name].copy_(weight)


def is_chain(module: nn.Module) -> bool:
    """Whether the module passes its input from one child to the next and does nothing else."""
    return isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward


def leaves(chain: nn.Module, path: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The layers of a chain, those of chains inside it in their place, by dotted name."""
    for name, child in chain._modules.items():  # with layers that stand there twice
        if child is not None and is_chain(child):
            yield from leaves(child, f"{path}{name}.")
        elif child is not None:
            yield f"{path}{name}", child
