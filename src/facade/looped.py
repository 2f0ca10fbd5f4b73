"""The executor for any torch module: one node at a time on each thread, in channels_last layout."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from facade import tree
from facade.dropout import AddressedDropout
from facade.errors import ExperimentError
from facade.executor import Executor, Fit, Prepare, in_chunks
from facade.optimisers import Memory
from facade.tree import Params


def named_tensors(module: nn.Module) -> Params:
    """Weights and float buffers: what is trained, sent and averaged. Counters stay at home."""
    buffers = {name: b for name, b in module.named_buffers() if b.is_floating_point()}
    return {**dict(module.named_parameters()), **buffers}


def under(name: str, prefixes: tuple[str, ...]) -> bool:
    """Whether a dotted name lies at or below one of the prefixes; "*" covers everything."""
    return any(p == "*" or name == p or name.startswith(p + ".") for p in prefixes)


@dataclass(frozen=True)
class Cut:
    """A model taken apart so that the core's features are computed once for all heads."""

    features: Callable[[nn.Module, Tensor], Tensor]
    head: Callable[[nn.Module, Tensor], Tensor]


def find_cut(module: nn.Module, prefixes: tuple[str, ...], example: Tensor) -> Cut | None:
    """Where the model can be cut: a chain whose last layers are the head, or one head submodule whose output
    is the model's output. None: heads are scored by full passes."""
    if prefixes != ("*",) and is_chain(module) and (at := _head_begins(module, prefixes)):
        return Cut(lambda m, x: _part(m, slice(at), x), lambda m, z: _part(m, slice(at, None), z))
    if len(prefixes) == 1 and prefixes[0] in dict(module.named_modules()):
        return _trailing(module, prefixes[0], example)
    return None


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


class _AtTheHead(Exception):  # noqa: N818 - not an error: it carries what the head was about to see
    """Leaves a forward pass where the head begins."""


def _trailing(module: nn.Module, name: str, example: Tensor) -> Cut | None:
    """The cut before submodule `name`, if it takes one input, by position, and its output, unchanged, is the
    model's."""
    seen: list[tuple[bool, Tensor, int]] = []

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
        lambda _, inputs, named, output: seen.append((len(inputs) == 1 and not named, output, output._version)),
        with_kwargs=True,
    )
    was_training = module.training
    try:
        with torch.no_grad():
            output = module.eval()(example)
    finally:
        hook.remove()
        module.train(was_training)
    if len(seen) != 1:
        return None
    [(one_input, of_head, version)] = seen
    if not one_input or of_head is not output or output._version != version:  # a version rises with changes in place
        return None
    return Cut(features, lambda m, z: m.get_submodule(name)(z))


class Looped(Executor):
    """Blocks of one node. Each thread has its own copy of the module and loads a node's weights
    into it; one intra-op thread each, which is how small batches reach the machine's limit."""

    name = "looped"
    block = 1

    def __init__(
        self, module: nn.Module, prefixes: tuple[str, ...], cut: Cut | None, prepare: Prepare, bf16: bool = False
    ) -> None:
        self._template = module
        self._prepare = prepare
        self._prefixes = prefixes
        self._cut = cut
        self.gives_features = cut is not None
        self.features_once = cut is not None or all(under(name, prefixes) for name in named_tensors(module))
        self._bf16 = bf16
        self._local = threading.local()

    def fit(self, params: Params, memory: Memory, batches: Fit) -> Tensor:
        module, tensors = self._loaded(tree.rows(params, 0))
        self._set_mode(module, batches.only)
        device = batches.x.device
        remembered = tree.map(lambda leaf: leaf.to(device), tree.rows(memory, 0))
        trained: Params = {
            name: p
            for name, p in module.named_parameters()
            if p.requires_grad and (batches.only is None or under(name, self._prefixes) == (batches.only == "head"))
        }
        losses = []
        for step in range(batches.y.shape[1]):
            x, y = _channels_last(batches.x[0, step]), batches.y[0, step]
            with AddressedDropout(batches.seed, batches.round, batches.nodes[0], step), self._precision(device):
                logits = self._forward(module, x, batches.only)
            loss = functional.cross_entropy(logits.to(x.dtype), y)
            found = torch.autograd.grad(loss, list(trained.values()), allow_unused=True) if trained else ()
            gradients = {name: g for name, g in zip(trained, found, strict=True) if g is not None}
            with torch.no_grad():
                batches.optimiser.step(trained, gradients, remembered, batches.round)
            losses.append(loss.detach())
        copy_weights(tree.rows(params, 0), tensors)
        for slot, kept in tree.rows(memory, 0).items():
            copy_weights(kept, remembered[slot])
        return torch.stack(losses).mean().view(1).cpu()

    def losses(self, params: Params, x: Tensor, y: Tensor) -> Tensor:
        module, _ = self._loaded(tree.rows(params, 0))
        return functional.cross_entropy(self._through(module.eval(), x[0]), y[0]).view(1).cpu()

    def head_losses(self, core: Params, heads: Params, x: Tensor, y: Tensor) -> Tensor:
        count = next(iter(heads.values())).shape[1]
        each = [tree.map(lambda leaf, j=j: leaf[0, j], heads) for j in range(count)]
        cut = self._cut
        if cut is None:
            whole = [{k: v.unsqueeze(0) for k, v in {**tree.rows(core, 0), **head}.items()} for head in each]
            return torch.stack([self.losses(model, x, y) for model in whole], 1)
        module, tensors = self._loaded({**tree.rows(core, 0), **each[0]})
        module.eval()
        z = self._through(lambda part: cut.features(module, part), x[0])
        scores = []
        for head in each:
            copy_weights(tensors, head)
            with self._precision(z.device):
                logits = cut.head(module, z.clone())  # a head may begin with an activation in place
            scores.append(functional.cross_entropy(logits.to(z.dtype), y[0]))
        return torch.stack(scores).view(1, count).cpu()

    def features(self, core: Params, x: Tensor) -> Tensor:
        module, _ = self._loaded(tree.rows(core, 0))
        module.eval()
        cut = self._cut
        if cut is None:
            raise ExperimentError(
                "the model cannot be cut before its head, so there are no features of its own for the head"
            )
        return self._through(lambda part: cut.features(module, part), x[0]).unsqueeze(0)

    def logits(self, params: Params, x: Tensor) -> Tensor:
        module, _ = self._loaded(tree.rows(params, 0))
        return self._through(module.eval(), x).unsqueeze(0)

    def _through(self, function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """The function over stored inputs x [m, ...], a cache-sized part at a time."""
        done = []
        for part in in_chunks(x):
            ready = _channels_last(self._prepare(part))
            with self._precision(ready.device):
                done.append(function(ready).to(ready.dtype))
        return torch.cat(done)

    def _precision(self, device: torch.device) -> torch.autocast:
        return torch.autocast(device.type, torch.bfloat16, enabled=self._bf16)

    def _forward(self, module: nn.Module, x: Tensor, only: str | None) -> Tensor:
        if only != "head" or self._cut is None:
            return module(x)  # type: ignore[no-any-return]
        with torch.no_grad():
            z = self._cut.features(module, x)
        return self._cut.head(module, z)

    def _loaded(self, weights: Params) -> tuple[nn.Module, Params]:
        """This thread's module with the given weights in it, and its tensors by name."""
        if not hasattr(self._local, "module"):
            module = copy.deepcopy(self._template).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            self._local.module, self._local.tensors = module, named_tensors(module)
        copy_weights(self._local.tensors, weights)
        return self._local.module, self._local.tensors

    def _set_mode(self, module: nn.Module, only: str | None) -> None:
        """Training mode for the part that is trained, evaluation mode for a frozen part."""
        for name, part in module.named_modules():
            part.training = only is None or under(name, self._prefixes) == (only == "head")


def copy_weights(tensors: Params, weights: Params) -> None:
    """Write weights into the tensors of the same names."""
    with torch.no_grad():
        for name, weight in weights.items():
            tensors[name].copy_(weight)


def _channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x
