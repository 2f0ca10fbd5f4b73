"""How stored samples become what a model takes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Inputs:
    """How stored samples become a model's input: bytes to [0, 1], then per-channel normalisation; with another scale
    than "auto", all but tokens are normalised as they are."""

    shape: tuple[int, ...]
    mean: list[float]
    std: list[float]
    scale: str = "auto"
    """What data.scale comes to."""

    @property
    def unit(self) -> int:
        """What is divided by before values are normalised."""
        return 255 if self.scale == "auto" else 1

    def normalises(self, stored: torch.dtype) -> bool:
        """Whether values that are stored so are normalised at all."""
        return self.scale != "tokens" and (self.scale != "auto" or stored == torch.uint8)

    def blank(self, count: int, dtype: torch.dtype, device: str | torch.device = "cpu") -> Tensor:
        """[count, *shape] zeros of the type that a model gets."""
        return torch.zeros(count, *self.shape, dtype=torch.int64 if self.scale == "tokens" else dtype, device=device)

    def prepare(self, x: Tensor, dtype: torch.dtype, device: str = "cpu") -> Tensor:
        """[..., *shape] stored values as normalised floats; tokens as they are."""
        x = x.to(device)
        if self.scale == "tokens":
            return x
        if not self.normalises(x.dtype):
            return x.to(dtype)
        per_channel = (-1,) + (1,) * (len(self.shape) - 1)
        mean, std = (torch.tensor(v, dtype=dtype, device=device).view(per_channel) for v in (self.mean, self.std))
        return x.to(dtype, copy=True).mul_(1 / (self.unit * std)).sub_(mean / std)  # what is stored stays as it is
