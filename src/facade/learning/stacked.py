"""The executor for small fully connected models: many nodes in one batched matrix product.

For a model of a few thousand weights, the time of a step is call overhead. Here a block of nodes
goes through each layer at once, and the backward pass is written out, so a step costs a dozen calls
for the whole block. It covers nn.Sequential models made of the layers below.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from facade.core import tree
from facade.core.tree import Params
from facade.learning.executor import Batches, Executor, Prepare, in_chunks
from facade.learning.optimisers import Memory
from facade.learning.parts import Parts
from facade.learning.torch_modules import is_chain, leaves, named_tensors

MOST_WEIGHTS = 65_536
"""Above this, a block of four nodes leaves the cache and the looped executor is as fast."""


class Layer(ABC):
    """One layer over z [b, m, values] with weights [b, ...]."""

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def forward(self, params: Params, z: Tensor) -> Tensor: ...

    @abstractmethod
    def backward(self, params: Params, z: Tensor, out: Tensor, d: Tensor, gradients: Params, last: bool) -> Tensor:
        """Gradient with respect to z from that with respect to `out`; adds its weights' gradients.
        `last` spares the gradient that nobody will use."""


class Linear(Layer):
    """nn.Linear."""

    def __init__(self, name: str, bias: bool) -> None:
        super().__init__(name)
        self.weight = f"{name}.weight"
        self.bias = f"{name}.bias" if bias else None

    def forward(self, params: Params, z: Tensor) -> Tensor:
        weight = params[self.weight].transpose(1, 2)
        if self.bias is None:
            return torch.bmm(z, weight)
        return torch.baddbmm(params[self.bias].unsqueeze(1), z, weight)

    def backward(self, params: Params, z: Tensor, out: Tensor, d: Tensor, gradients: Params, last: bool) -> Tensor:
        gradients[self.weight] = torch.bmm(d.transpose(1, 2), z)
        if self.bias is not None:
            gradients[self.bias] = d.sum(1)
        return d if last else torch.bmm(d, params[self.weight])


class ReLU(Layer):
    """nn.ReLU."""

    def forward(self, params: Params, z: Tensor) -> Tensor:
        return z.relu()

    def backward(self, params: Params, z: Tensor, out: Tensor, d: Tensor, gradients: Params, last: bool) -> Tensor:
        return torch.ops.aten.threshold_backward(d, out, 0)  # type: ignore[no-any-return]


class Tanh(Layer):
    """nn.Tanh."""

    def forward(self, params: Params, z: Tensor) -> Tensor:
        return z.tanh()

    def backward(self, params: Params, z: Tensor, out: Tensor, d: Tensor, gradients: Params, last: bool) -> Tensor:
        return torch.ops.aten.tanh_backward(d, out)  # type: ignore[no-any-return]


def layers_of(module: nn.Module) -> list[Layer] | None:
    """The model as layers, or None if it is not a chain of those known here, each with weights of its own
    and all of them to be trained."""
    if not is_chain(module) or not all(weight.requires_grad for weight in module.parameters()):
        return None
    chain: list[Layer] = []
    for name, leaf in leaves(module):
        kind = type(leaf)  # a class derived from one of these computes something else
        if kind is nn.Linear:
            chain.append(Linear(name, leaf.bias is not None))
        elif kind is nn.ReLU:
            chain.append(ReLU(name))
        elif kind is nn.Tanh:
            chain.append(Tanh(name))
        elif kind is not nn.Flatten or chain:
            return None
    weights = [name for layer in chain if isinstance(layer, Linear) for name in (layer.weight, layer.bias) if name]
    return chain if sorted(weights) == sorted(named_tensors(module)) else None


def head_is_last(layers: list[Layer], parts: Parts) -> bool:
    """Whether the head is a number of whole layers at the end of the chain."""
    weights = [
        [parts.in_head(name) for name in (layer.weight, layer.bias) if name is not None]
        for layer in layers
        if isinstance(layer, Linear)
    ]
    whole = all(len(set(tensors)) == 1 for tensors in weights)
    return whole and sorted(weights, key=any) == weights


def block_size(weights: int) -> int:
    """Nodes per block: as many as keep the block's weights in a core's cache, 32 at the most."""
    return max(1, min(32, 4 * MOST_WEIGHTS // max(weights, 1)))


class Stacked(Executor):
    """Blocks of up to 32 nodes through batched matrix products."""

    name = "stacked"

    def __init__(self, layers: list[Layer], weights: int, parts: Parts, prepare: Prepare) -> None:
        self._prepare = prepare
        self.block = block_size(weights)
        in_head = [isinstance(layer, Linear) and parts.in_head(layer.weight) for layer in layers]
        at = in_head.index(True) if True in in_head else len(layers)
        self._layers, self._core, self._head = layers, layers[:at], layers[at:]
        self.gives_features = isinstance(layers[-1], Linear)

    def fit(self, start: Params, trained: Params, memory: Memory, batches: Batches) -> Tensor:
        """As in Executor; on the CPU, where small models belong."""
        params = tree.map(Tensor.copy_, trained, start)
        layers = {None: self._layers, "core": self._core, "head": self._head}[batches.only]
        nodes, steps, size = batches.y.shape
        x = batches.x.flatten(3)
        losses = torch.zeros(nodes, dtype=x.dtype)
        minus_one = torch.full((nodes, size, 1), -1, dtype=x.dtype)
        for step in range(steps):
            inputs = [x[:, step]]
            for layer in self._layers:
                inputs.append(layer.forward(params, inputs[-1]))
            out = inputs.pop()
            log_p = _adjusted(out, batches.log_shares).log_softmax(-1)
            y = batches.y[:, step].unsqueeze(-1)
            losses -= log_p.gather(-1, y).sum((1, 2))
            d = log_p.exp_().scatter_add_(-1, y, minus_one).mul_(1 / size)
            batches.optimiser.step(params, self._gradients(params, inputs, out, d, layers), memory, batches.round)
        return losses / (steps * size)

    def _gradients(self, params: Params, inputs: list[Tensor], out: Tensor, d: Tensor, trained: list[Layer]) -> Params:
        """Of the weights of `trained`, from every layer's input, the last one's output and its gradient d."""
        gradients: Params = {}
        outputs = [*inputs[1:], out]
        weighted = [layer for layer in trained if isinstance(layer, Linear)]
        if not weighted:
            return gradients
        for layer, z, out in zip(reversed(self._layers), reversed(inputs), reversed(outputs), strict=True):
            d = layer.backward(params, z, out, d, gradients, last=layer is weighted[0])
            if layer is weighted[0]:
                break
        keep = {layer.name for layer in trained}
        return {name: g for name, g in gradients.items() if name.rsplit(".", 1)[0] in keep}

    def losses(self, params: Params, x: Tensor, y: Tensor, log_shares: Tensor | None = None) -> Tensor:
        return _mean_loss(_adjusted(_chain(self._layers, params, self._prepare(x).flatten(2)), log_shares), y)

    def head_losses(
        self, core: Params, heads: Params, x: Tensor, y: Tensor, log_shares: Tensor | None = None
    ) -> Tensor:
        z = _chain(self._core, core, self._prepare(x).flatten(2))
        count = next(iter(heads.values())).shape[1]
        each = [{name: leaf[:, j].contiguous() for name, leaf in heads.items()} for j in range(count)]
        return torch.stack([_mean_loss(_adjusted(_chain(self._head, head, z), log_shares), y) for head in each], 1)

    def features(self, core: Params, x: Tensor) -> Tensor:
        return _chain(self._core, core, self._prepare(x).flatten(2))

    def logits(self, params: Params, x: Tensor) -> Tensor:
        nodes = len(next(iter(params.values())))
        parts = (self._prepare(part).flatten(1).expand(nodes, -1, -1) for part in in_chunks(x))
        return torch.cat([_chain(self._layers, params, z) for z in parts], 1)


def _chain(layers: list[Layer], params: Params, z: Tensor) -> Tensor:
    for layer in layers:
        z = layer.forward(params, z)
    return z


def _adjusted(logits: Tensor, log_shares: Tensor | None) -> Tensor:
    """Outputs [b, m, classes] with what is added to them before the loss."""
    return logits if log_shares is None else logits + log_shares.unsqueeze(1)


def _mean_loss(logits: Tensor, y: Tensor) -> Tensor:
    return -logits.log_softmax(-1).gather(-1, y.unsqueeze(-1)).mean((1, 2))
