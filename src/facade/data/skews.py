"""How clusters differ.

Most skews change how images look: a function (images uint8 [N, C, H, W], View) -> images, applied
once at load, to training and test images alike; the shape stays, and cluster 0 is unchanged. One
selects instead: `labels` says which classes a cluster has. Names combine: "rotate+blur".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from facade.core import seeds
from facade.core.types import Ids
from facade.data.samples import Dataset
from facade.data.section import DataSection
from facade.errors import ExperimentError


@dataclass(frozen=True)
class View:
    """What a skew knows about the images it changes."""

    cluster: int
    clusters: int
    severity: float
    """data.severity: how much stronger than usual blur, contrast, brightness and noise are."""
    rows: Ids
    """[N] numbers of the images in their split; noise is addressed by them."""
    split: str
    """"train" or "test"."""

    @property
    def strength(self) -> float:
        """0 for cluster 0, then severity, twice severity, ..."""
        return self.severity * self.cluster


Change = Callable[[Tensor, View], Tensor]
Selection = Callable[[Dataset, "DataSection", int], list[Ids]]


def none(images: Tensor, view: View) -> Tensor:
    """All clusters alike."""
    return images


def rotate(images: Tensor, view: View) -> Tensor:
    """Two clusters: 0 and 180 degrees; three or four: 0, 90, 180, 270 degrees, counter-clockwise."""
    if view.clusters > 4:
        raise ExperimentError(
            f"skew 'rotate' knows 4 directions but data.clusters names {view.clusters} clusters;"
            " use at most 4 clusters or another skew"
        )
    quarters = view.cluster * (2 if view.clusters <= 2 else 1)
    if quarters % 2 and images.shape[-1] != images.shape[-2]:
        raise ExperimentError(
            f"a quarter turn of {images.shape[-2]}x{images.shape[-1]} images changes their shape;"
            " make them square or use at most 2 clusters"
        )
    return torch.rot90(images, quarters, (-2, -1)).contiguous()


def colour(images: Tensor, view: View) -> Tensor:
    """Up to four clusters: unchanged, saturation doubled, sepia, grayscale."""
    if images.shape[1] != 3:
        raise ExperimentError(
            f"skew 'colour' needs images with 3 channels but these have {images.shape[1]}; use another skew"
        )
    if view.clusters > 4:
        raise ExperimentError(
            f"skew 'colour' knows 4 looks but data.clusters names {view.clusters} clusters;"
            " use at most 4 clusters or another skew"
        )
    if view.cluster == 0:
        return images
    return (saturated, sepia, gray)[view.cluster - 1](images)


def gray(images: Tensor) -> Tensor:
    """Luma (ITU-R 601-2, in 16-bit fixed point as Pillow computes it) in all three channels."""
    weights = torch.tensor([19595, 38470, 7471], dtype=torch.int32).view(1, 3, 1, 1)
    luma = ((images.int() * weights).sum(1, keepdim=True, dtype=torch.int32) + 0x8000) >> 16
    return luma.to(torch.uint8).expand_as(images).contiguous()


def saturated(images: Tensor) -> Tensor:
    """Twice as far from gray, as Pillow's Color enhancement with factor 2."""
    return (2 * images.short() - gray(images).short()).clamp_(0, 255).to(torch.uint8)


def sepia(images: Tensor) -> Tensor:
    """The usual sepia matrix, clamped; in thousandths, so that every machine rounds alike."""
    red, green, blue = images.int().unbind(1)
    weights = (393, 769, 189), (349, 686, 168), (272, 534, 131)
    mixed = [(r * red + g * green + b * blue + 500) // 1000 for r, g, b in weights]
    return torch.stack([channel.clamp_(max=255).to(torch.uint8) for channel in mixed], 1)


def _bytes(values: Tensor) -> Tensor:
    return values.round_().clamp_(0, 255).to(torch.uint8)


def blur(images: Tensor, view: View) -> Tensor:
    """A Gaussian of 1/32 of the image's height (1 pixel of 32) x severity x cluster."""
    sigma = view.strength * images.shape[-2] / 32
    if sigma == 0:
        return images
    radius = int(min(np.ceil(3 * sigma), *(side - 1 for side in images.shape[-2:])))
    offsets = torch.arange(-radius, radius + 1, dtype=torch.float32)
    kernel = torch.exp(-0.5 * (offsets / sigma) ** 2)
    kernel /= kernel.sum()
    x = images.float().flatten(0, 1).unsqueeze(1)  # every channel on its own
    x = functional.pad(x, (radius, radius, radius, radius), mode="reflect")
    x = functional.conv2d(functional.conv2d(x, kernel.view(1, 1, 1, -1)), kernel.view(1, 1, -1, 1))
    return _bytes(x.view(images.shape))


def contrast(images: Tensor, view: View) -> Tensor:
    """Towards each image's mean: differences from it divided by 1 + severity x cluster."""
    if view.strength == 0:
        return images
    x = images.float()
    mean = x.mean((1, 2, 3), keepdim=True)
    return _bytes(mean + (x - mean) / (1 + view.strength))


def brightness(images: Tensor, view: View) -> Tensor:
    """Darker: all values divided by 1 + severity x cluster."""
    return images if view.strength == 0 else _bytes(images.float() / (1 + view.strength))


def noise(images: Tensor, view: View) -> Tensor:
    """Bell-shaped noise of deviation 26 (of 255) x severity x cluster, always the same for an image."""
    if view.strength == 0:
        return images
    values = images[0].numel()
    words = seeds.words(0, f"noise-{view.split}", view.cluster, view.rows, values)
    # The sum of a word's eight bytes: close to a normal distribution, and exact on every machine.
    total = words.view(np.uint8).reshape(len(images), values, 8).sum(-1, dtype=np.int64)
    deviation = np.sqrt(8 * (256**2 - 1) / 12)
    stop_signals = torch.from_numpy(((total - 8 * 127.5) / deviation).astype(np.float32)).view(images.shape)
    return _bytes(images.float() + stop_signals * (26 * view.strength))


def labels(dataset: Dataset, data: DataSection, clusters: int) -> list[Ids]:
    """Each cluster has its own classes (data.groups; CIFAR-10: vehicles and animals)."""
    groups, count = data.groups or dataset.groups, len(dataset.classes)
    if not groups:
        raise ExperimentError(
            f"skew 'labels' needs data.groups, the classes of each cluster; write e.g. groups = [[0, 1], [2, 3]]"
            f" ('{data.source}' has classes 0 to {count - 1})"
        )
    if len(groups) != clusters:
        raise ExperimentError(
            f"skew 'labels' has {len(groups)} groups of classes but there are {clusters} clusters; write one group per"
            " cluster in data.groups"
        )
    flat = [label for group in groups for label in group]
    for label in flat:
        if not 0 <= label < count:
            raise ExperimentError(f"data.groups names class {label}; '{data.source}' has classes 0 to {count - 1}")
        if flat.count(label) > 1:
            raise ExperimentError(f"data.groups names class {label} twice; a class belongs to one cluster")
    if not all(groups):
        raise ExperimentError(f"data.groups = {groups} leaves a cluster without a class; give each at least one")
    return [np.array(group, np.int64) for group in groups]


CHANGES: dict[str, Change] = {
    "none": none,
    "rotate": rotate,
    "colour": colour,
    "blur": blur,
    "contrast": contrast,
    "brightness": brightness,
    "noise": noise,
}
SELECTIONS: dict[str, Selection] = {"labels": labels}
SKEWS: dict[str, Change | Selection] = {**CHANGES, **SELECTIONS}
"""All names, for whoever lists or looks them up."""
