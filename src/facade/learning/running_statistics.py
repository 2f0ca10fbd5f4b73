"""Means and variances that batch normalisation keeps of what it sees: they are estimated, not trained."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from facade.learning.torch_modules import named_tensors


def running_statistics(module: nn.Module) -> list[str]:
    """The names of a model's running statistics."""
    kept = {id(statistic) for layer in _layers(module) for statistic in (layer.running_mean, layer.running_var)}
    return [name for name, tensor in named_tensors(module).items() if id(tensor) in kept]


def running_variances(module: nn.Module) -> list[str]:
    """The names of those running statistics that are variances, and so never negative."""
    kept = {id(layer.running_var) for layer in _layers(module)}
    return [name for name, tensor in named_tensors(module).items() if id(tensor) in kept]


def estimate(module: nn.Module, batches: Iterable[Tensor]) -> None:
    """Replace a model's running statistics by those of the given inputs, each batch [m > 1, ...] counting alike.
    Nothing is trained."""
    layers = _layers(module)
    momenta = [layer.momentum for layer in layers]
    module.eval()
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # the mean over all batches
        layer.train()
    with torch.no_grad():
        for batch in batches:
            module(batch)
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum
    module.eval()


def _layers(module: nn.Module) -> list[nn.modules.batchnorm._NormBase]:
    return [
        layer
        for layer in module.modules()
        if isinstance(layer, nn.modules.batchnorm._NormBase) and layer.running_mean is not None
    ]
