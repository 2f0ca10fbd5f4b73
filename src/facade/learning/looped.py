"""The executor for any torch module: one node at a time on each thread, in channels_last layout."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from facade.core import tree
from facade.core.tree import Params
from facade.errors import ExperimentError
from facade.learning.dropout import AddressedDropout
from facade.learning.executor import Batches, Executor, Prepare, in_chunks
from facade.learning.optimisers import Memory
from facade.learning.parts import Parts
from facade.learning.split_point import SplitPoint
from facade.learning.torch_modules import copy_weights, named_tensors, under


class Looped(Executor):
    """Blocks of one node. Each thread has its own copy of the module and loads a node's weights
    into it; one intra-op thread each, which is how small batches reach the machine's limit."""

    name = "looped"
    block = 1

    def __init__(
        self,
        module: nn.Module,
        parts: Parts,
        split: SplitPoint | None,
        prepare: Prepare,
        bf16: bool = False,
    ) -> None:
        self._template = module
        self._prepare = prepare
        self._parts = parts
        self._split = split
        self.gives_features = split is not None
        self.features_once = split is not None or all(under(name, parts.head) for name in named_tensors(module))
        self._bf16 = bf16
        self._dtype = next((t.dtype for t in named_tensors(module).values()), torch.float32)
        self._local = threading.local()

    def fit(self, start: Params, trained: Params, memory: Memory, batches: Batches) -> Tensor:
        module, tensors = self._loaded(tree.rows(start, 0))
        self._set_mode(module, batches.only)
        device = batches.x.device
        remembered = tree.map(lambda leaf: leaf.to(device), tree.rows(memory, 0))
        weights: Params = {
            name: p
            for name, p in module.named_parameters()
            if p.requires_grad and (batches.only is None or self._parts.in_head(name) == (batches.only == "head"))
        }
        losses = []
        for step in range(batches.y.shape[1]):
            x, y = _channels_last(batches.x[0, step]), batches.y[0, step]
            with AddressedDropout(batches.seed, batches.round, batches.nodes[0], step), self._precision(device):
                logits = self._forward(module, x, batches.only)
            loss = _loss(logits.to(self._dtype), y, batches.log_shares)
            gradients_of_all = torch.autograd.grad(loss, list(weights.values()), allow_unused=True) if weights else ()
            gradients = {name: g for name, g in zip(weights, gradients_of_all, strict=True) if g is not None}
            with torch.no_grad():
                batches.optimiser.step(weights, gradients, remembered, batches.round)
            losses.append(loss.detach())
        copy_weights(tree.rows(trained, 0), tensors)
        for slot, kept in tree.rows(memory, 0).items():
            copy_weights(kept, remembered[slot])
        return torch.stack(losses).mean().view(1).cpu()

    def losses(self, params: Params, x: Tensor, y: Tensor, log_shares: Tensor | None = None) -> Tensor:
        module, _ = self._loaded(tree.rows(params, 0))
        return _loss(self._through(module.eval(), x[0]), y[0], log_shares).view(1).cpu()

    def head_losses(
        self, core: Params, heads: Params, x: Tensor, y: Tensor, log_shares: Tensor | None = None
    ) -> Tensor:
        count = next(iter(heads.values())).shape[1]
        each = [tree.map(lambda leaf, j=j: leaf[0, j], heads) for j in range(count)]
        split = self._split
        if split is None:
            whole = [{k: v.unsqueeze(0) for k, v in {**tree.rows(core, 0), **head}.items()} for head in each]
            return torch.stack([self.losses(model, x, y, log_shares) for model in whole], 1)
        module, tensors = self._loaded({**tree.rows(core, 0), **each[0]})
        module.eval()
        z = self._through(lambda part: split.features(module, part), x[0])
        scores = []
        for head in each:
            copy_weights(tensors, head)
            with self._precision(z.device):
                logits = split.head(module, z.clone())  # a head may begin with an activation in place
            scores.append(_loss(logits.to(self._dtype), y[0], log_shares))
        return torch.stack(scores).view(1, count).cpu()

    def features(self, core: Params, x: Tensor) -> Tensor:
        module, _ = self._loaded(tree.rows(core, 0))
        module.eval()
        split = self._split
        if split is None:
            raise ExperimentError(
                "the model cannot be split before its head, so there are no features of its own for the head"
            )
        return self._through(lambda part: split.features(module, part), x[0]).unsqueeze(0)

    def logits(self, params: Params, x: Tensor) -> Tensor:
        module, _ = self._loaded(tree.rows(params, 0))
        return self._through(module.eval(), x).unsqueeze(0)

    def _through(self, function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """The function over stored inputs x [m, ...], a cache-sized part at a time."""
        outputs = []
        for part in in_chunks(x):
            ready = _channels_last(self._prepare(part))
            with self._precision(ready.device):
                outputs.append(function(ready).to(self._dtype))
        return torch.cat(outputs)

    def _precision(self, device: torch.device) -> torch.autocast:
        return torch.autocast(device.type, torch.bfloat16, enabled=self._bf16)

    def _forward(self, module: nn.Module, x: Tensor, only: str | None) -> Tensor:
        if only != "head" or self._split is None:
            return module(x)  # type: ignore[no-any-return]
        with torch.no_grad():
            z = self._split.features(module, x)
        return self._split.head(module, z)

    def _loaded(self, weights: Params) -> tuple[nn.Module, Params]:
        """This thread's module with the given weights in it, and its tensors by name."""
        if not hasattr(self._local, "module"):
            module = copy.deepcopy(self._template)
            if all(leaf.dim() < 5 for leaf in (*module.parameters(), *module.buffers())):  # volumes have no such layout
                module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            self._local.module, self._local.tensors = module, named_tensors(module)
        copy_weights(self._local.tensors, weights)
        return self._local.module, self._local.tensors

    def _set_mode(self, module: nn.Module, only: str | None) -> None:
        """Training mode for the part that is trained, as the model sees it: its own `train` may keep a part in
        evaluation mode. Evaluation mode for a part that `only` freezes."""
        module.train()
        for name, part in module.named_modules():
            if only is not None and self._parts.in_head(name) != (only == "head"):
                part.training = False


def _loss(logits: Tensor, y: Tensor, log_shares: Tensor | None) -> Tensor:
    """Mean loss of one node's outputs [m, classes], with log_shares [1, classes] added to them if there are any."""
    return functional.cross_entropy(logits if log_shares is None else logits + log_shares, y)


def _channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x
