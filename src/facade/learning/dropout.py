"""Randomness inside a model's forward pass, addressed like all other randomness of a run.

While a node trains, dropout masks are drawn from (seed, round, node, step, call), so a run with
dropout is as repeatable, resumable and independent of threads as one without. Any other random
operation in a forward pass is refused: it would draw from a stream that nobody can repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from facade.core import seeds
from facade.errors import ExperimentError

_MASKED_AXES: dict[Any, int | None] = {
    functional.dropout: None,  # every value for itself
    functional.dropout1d: 2,  # whole channels: one mask value for the first two axes
    functional.dropout2d: 2,
    functional.dropout3d: 2,
}
_UNBATCHED = {functional.dropout1d: 2, functional.dropout3d: 4}
"""Axes of an input that torch takes for one sample, without an axis of samples before the channels."""
_RANDOM = {
    "alpha_dropout", "bernoulli", "bernoulli_", "cauchy_", "exponential_", "feature_alpha_dropout",
    "fractional_max_pool2d", "fractional_max_pool3d", "geometric_", "gumbel_softmax", "log_normal_", "multinomial",
    "normal", "normal_", "poisson", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like",
    "random_", "randperm", "rrelu", "uniform_",
}  # fmt: skip


class AddressedDropout(TorchFunctionMode):
    """Active on a node's thread during one training step."""

    def __init__(self, seed: int, round: int, node: int, step: int) -> None:
        super().__init__()
        self._address = (seed, round, node, step)
        self._calls = 0

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if function in _MASKED_AXES:
            return self._drop(function, *args, **(kwargs or {}))
        name = getattr(function, "__name__", "")
        if name in _RANDOM or (name == "scaled_dot_product_attention" and (kwargs or {}).get("dropout_p", 0) > 0):
            raise ExperimentError(
                f"the model calls {name} while it trains; only dropout, dropout1d, dropout2d and dropout3d are drawn"
                " repeatably: replace it"
            )
        return function(*args, **(kwargs or {}))

    def _drop(self, function: Any, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training or p == 0:
            return x
        axes = 1 if _UNBATCHED.get(function) == x.dim() else _MASKED_AXES[function]
        shape = x.shape if axes is None else (*x.shape[:axes], *([1] * (x.dim() - axes)))
        seed, round, node, step = self._address
        purpose = f"dropout/{step}/{self._calls}"
        self._calls += 1
        drawn = seeds.uniform(seed, purpose, round, np.array([node]), int(np.prod(shape)))
        keep = torch.from_numpy(drawn >= p).view(shape).to(x.device)
        return x * keep / (1 - p) if p < 1 else x * 0
