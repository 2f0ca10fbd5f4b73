"""How stored samples become what a model takes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Inputs:
    """How stored samples become a model's input: bytes to [0, 1], then per-channel normalisation."""

    shape: tuple[int, ...]
    mean: list[float]
    std: list[float]

    def prepare(self, x: Tensor, dtype: torch.dtype, device: str = "cpu") -> Tensor:
        """[..., *shape] stored values as normalised floats."""
        x = x.to(device)
        if x.dtype != torch.uint8:
            return x.to(dtype)
        per_channel = (-1,) + (1,) * (len(self.shape) - 1)
        mean, std = (torch.tensor(v, dtype=dtype, device=device).view(per_channel) for v in (self.mean, self.std))
        return x.to(dtype).mul_(1 / (255 * std)).sub_(mean / std)
