"""The bare loops that our rounds are measured against: the arithmetic and nothing else."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class BareLoop:
    """One module per thread, one intra-op thread each, foreach SGD, a new batch every step."""

    def __init__(self, module: nn.Module, threads: int, layout: torch.memory_format = torch.channels_last) -> None:
        self._modules = [copy.deepcopy(module).to(memory_format=layout) for _ in range(threads)]  # type: ignore[call-overload]
        self._layout = layout
        self.pool = ThreadPoolExecutor(threads, initializer=lambda: torch.set_num_threads(1))

    def train(self, x: Tensor, y: Tensor, nodes: int, steps: int) -> None:
        """SGD steps for every node on batches x [batches, size, ...], y [batches, size]."""

        def work(module: nn.Module, count: int) -> None:
            weights: list[Tensor] = list(module.parameters())
            for step in range(count * steps):
                batch = x[step % len(x)].contiguous(memory_format=self._layout)
                loss = functional.cross_entropy(module(batch), y[step % len(y)])
                gradients = torch.autograd.grad(loss, weights)
                with torch.no_grad():
                    torch._foreach_add_(weights, gradients, alpha=-0.01)

        list(self.pool.map(work, self._modules, self._shares(nodes)))

    def _shares(self, nodes: int) -> list[int]:
        """Nodes per thread, which together are all of them."""
        threads = len(self._modules)
        return [nodes // threads + (thread < nodes % threads) for thread in range(threads)]

    def forward(self, x: list[Tensor], nodes: int, heads: int = 1) -> None:
        """The core once and `heads` heads for every node, on the parts x."""

        def work(module: Any, count: int) -> None:
            with torch.no_grad():
                for _ in range(count):
                    z = [module[:-1](part.contiguous(memory_format=self._layout)) for part in x]
                    for _ in range(heads):
                        module[-1](torch.cat(z))

        list(self.pool.map(work, self._modules, self._shares(nodes)))

    def predict(self, x: list[Tensor], nodes: int) -> None:
        """The whole model for every node, in evaluation mode, on the parts x."""

        def work(module: nn.Module, count: int) -> None:
            module.eval()
            with torch.no_grad():
                for _ in range(count):
                    torch.cat([module(part.contiguous(memory_format=self._layout)) for part in x])

        list(self.pool.map(work, self._modules, self._shares(nodes)))


def batched_products(weights: list[Tensor], x: Tensor, y: Tensor, lr: float) -> None:
    """SGD on a stack of two-layer perceptrons, forward and backward written out: weights
    [b, h, d], [b, h], [b, c, h], [b, c]; x [b, steps, size, d], y [b, steps, size]."""
    w1, b1, w2, b2 = weights
    for step in range(x.shape[1]):
        inputs, size = x[:, step], x.shape[2]
        hidden = torch.baddbmm(b1.unsqueeze(1), inputs, w1.transpose(1, 2)).relu_()
        d = torch.baddbmm(b2.unsqueeze(1), hidden, w2.transpose(1, 2)).softmax(-1)
        d.scatter_add_(2, y[:, step].unsqueeze(2), d.new_full((len(d), size, 1), -1)).mul_(1 / size)
        dh = torch.bmm(d, w2).mul_(hidden > 0)
        w2.baddbmm_(d.transpose(1, 2), hidden, alpha=-lr)
        b2.sub_(d.sum(1), alpha=lr)
        w1.baddbmm_(dh.transpose(1, 2), inputs, alpha=-lr)
        b1.sub_(dh.sum(1), alpha=lr)
