"""Where a model is split into core and head, so that what the head sees is computed once for all heads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from facade.learning.torch_modules import is_chain, leaves, named_tensors, under


@dataclass(frozen=True)
class SplitPoint:
    """A model taken apart so that the core's features are computed once for all heads."""

    features: Callable[[nn.Module, Tensor], Tensor]
    head: Callable[[nn.Module, Tensor], Tensor]


def find_split_point(module: nn.Module, prefixes: tuple[str, ...], example: Tensor) -> SplitPoint | None:
    """Where the model can be split: a chain whose last layers are the head, or one head submodule whose output
    is the model's output. None: heads are scored by full passes."""
    was_training = module.training
    module.eval()
    try:
        with torch.no_grad():
            split = _find(module, prefixes, example)
            return split if split is not None and _in_parts(split, module, example) else None
    finally:
        module.train(was_training)


def _find(module: nn.Module, prefixes: tuple[str, ...], example: Tensor) -> SplitPoint | None:
    if prefixes != ("*",) and is_chain(module) and (at := _head_begins(module, prefixes)):
        return SplitPoint(lambda m, x: _part(m, slice(at), x), lambda m, z: _part(m, slice(at, None), z))
    if len(prefixes) == 1 and prefixes[0] in dict(module.named_modules()):
        return _trailing(module, prefixes[0], example)
    return None


def _in_parts(split: SplitPoint, module: nn.Module, example: Tensor) -> bool:
    """Whether features are one tensor, a row per sample, so that those of parts can be put together."""
    features = [split.features(module, part) for part in (example, example[:1])]
    sizes = [part.shape[:1] if isinstance(part, Tensor) else () for part in features]
    return sizes == [(len(example),), (1,)]


def _head_begins(chain: nn.Module, prefixes: tuple[str, ...]) -> int | None:
    """How many layers stand before the head; None if it is anything but whole layers at the end."""
    begins, inside = None, False
    for number, (name, layer) in enumerate(leaves(chain)):
        inside = under(name, prefixes)
        if not inside and any(under(f"{name}.{weight}", prefixes) for weight in named_tensors(layer)):
            return None
        if inside and begins is None:
            begins = number
        elif not inside and begins is not None and named_tensors(layer):
            return None
    return begins if inside else None


def _part(chain: nn.Module, which: slice, x: Tensor) -> Tensor:
    for _, layer in list(leaves(chain))[which]:
        x = layer(x)
    return x


def _version_of(output: object) -> int:
    """A number that rises when a tensor is changed in place."""
    return output._version if isinstance(output, Tensor) else 0


class _AtTheHead(Exception):  # noqa: N818 - not an error: it carries what the head was about to see
    """Leaves a forward pass where the head begins."""


def _trailing(module: nn.Module, name: str, example: Tensor) -> SplitPoint | None:
    """The split before submodule `name`, if it takes one input, by position, and its output, unchanged, is the
    model's."""
    seen: list[tuple[bool, object, int]] = []

    def stop(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        raise _AtTheHead(inputs[0])

    def features(m: nn.Module, x: Tensor) -> Tensor:
        hook = m.get_submodule(name).register_forward_pre_hook(stop)
        try:
            m(x)
        except _AtTheHead as at:
            z: Tensor = at.args[0]
            return z
        finally:
            hook.remove()
        raise RuntimeError(f"the model did not call its head '{name}'")

    hook = module.get_submodule(name).register_forward_hook(
        lambda _, inputs, named, output: seen.append((len(inputs) == 1 and not named, output, _version_of(output))),
        with_kwargs=True,
    )
    try:
        output = module(example)
    finally:
        hook.remove()
    if len(seen) != 1:
        return None
    [(one_input, of_head, version)] = seen
    if not one_input or of_head is not output or _version_of(output) != version:
        return None
    return SplitPoint(features, lambda m, z: m.get_submodule(name)(z))
