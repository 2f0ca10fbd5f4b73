"""How clusters differ: a skew turns the plain images into those of one cluster.

A skew is a function (images uint8 [N, C, H, W], cluster, number of clusters) -> images; it is
applied once at load, to training and test images alike. Cluster 0 is the unchanged one.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from facade.errors import ExperimentError

Skew = Callable[[Tensor, int, int], Tensor]


def none(images: Tensor, cluster: int, clusters: int) -> Tensor:
    """All clusters alike."""
    return images


def rotate(images: Tensor, cluster: int, clusters: int) -> Tensor:
    """Two clusters: 0 and 180 degrees; three or four: 0, 90, 180, 270 degrees, counter-clockwise."""
    if clusters > 4:
        raise ExperimentError(
            f"skew 'rotate' knows 4 directions but data.clusters names {clusters} clusters;"
            " use at most 4 clusters or another skew"
        )
    quarters = cluster * (2 if clusters <= 2 else 1)
    if quarters % 2 and images.shape[-1] != images.shape[-2]:
        raise ExperimentError(
            f"a quarter turn of {images.shape[-2]}x{images.shape[-1]} images changes their shape;"
            " make them square or use at most 2 clusters"
        )
    return torch.rot90(images, quarters, (-2, -1)).contiguous()


SKEWS: dict[str, Skew] = {"none": none, "rotate": rotate}
