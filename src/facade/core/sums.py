"""Sums whose additions have one order, and so the same bits everywhere.

Every segment's sum begins with zero and takes the segment's rows one after the other, as they are listed. That rules
out matrix products and `Tensor.sum`, which add in an order of their own.
"""

from __future__ import annotations

import functools
import itertools
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from facade.core import seeds

_CACHED_VALUES = 1 << 17
"""Numbers of a piece of all rows, from which sums are made: it stays in a core's cache."""
_LEAST_COLUMNS = 4096
"""Values of a row that are added together, if there are as many: to find a row takes a while, too."""
_BLOCK_VALUES = 1 << 18
"""Numbers that are summed before they are written where they belong."""
_WAVE_VALUES = 1 << 16
"""The same, where all segments advance together."""


def row_sums(leaf: Tensor, row: Tensor, counts: Tensor) -> Tensor:
    """[segments, ...] sums of rows of the leaf [M, ...]: the first counts[0] of `row` make the first segment, and so
    on."""
    segments = len(counts)
    if not leaf.numel() or leaf.dtype not in (torch.float32, torch.float64) or not bags_add_in_order(leaf.dtype):
        return sums_by_waves(leaf, waves(torch.arange(segments).repeat_interleave(counts), row), segments)
    rows = leaf.reshape(len(leaf), -1)
    sums = rows.new_empty(segments, rows.shape[1])
    columns = min(rows.shape[1], max(_LEAST_COLUMNS, _CACHED_VALUES // len(rows)))
    bags = list(_bags(row, counts, max(1, _BLOCK_VALUES // columns)))
    for start in range(0, rows.shape[1], columns):
        some = slice(start, start + columns)
        piece = rows[:, some].contiguous()
        for block, members, first in bags:
            sums[block, some] = functional.embedding_bag(members, piece, first, mode="sum")
    return sums.view(segments, *leaf.shape[1:])


def _bags(row: Tensor, counts: Tensor, size: int) -> list[tuple[slice, Tensor, Tensor]]:
    """Blocks of so many segments, with the rows in them and where in these each segment begins."""
    ends = torch.cumsum(counts, 0)
    first = ends - counts
    blocks = [slice(start, min(start + size, len(counts))) for start in range(0, len(counts), size)]
    return [(b, row[int(first[b.start]) : int(ends[b.stop - 1])], first[b] - first[b.start]) for b in blocks]


@functools.cache
def bags_add_in_order(dtype: torch.dtype) -> bool:
    """Whether torch's `embedding_bag`, several times as fast as additions one by one, adds as it is said above. Its
    documentation leaves that open, so it is tried once, on numbers of which another order gives other sums."""
    rows, width = 96, 131
    drawn = torch.from_numpy(seeds.uniform(0, "sums", 0, np.arange(rows), 2 * width)).view(rows, 2, width)
    leaf = ((drawn[:, 0] - 0.5) * 2.0 ** (40 * drawn[:, 1] - 20)).to(dtype)
    leaf[:, 0] = -0.0
    counts = torch.tensor([1, 2, 0, 5, 8, 16, 31, 65, 96])
    row = torch.cat([torch.arange(count).flip(0) for count in counts.tolist()])
    first = torch.cumsum(counts, 0) - counts
    segments = waves(torch.arange(len(counts)).repeat_interleave(counts), row)
    for columns in (1, 10, 64, width):
        piece = leaf[:, :columns].contiguous()
        bags = functional.embedding_bag(row, piece, first, mode="sum")
        expected = sums_by_waves(piece, segments, len(counts))
        if not (bags.equal(expected) and bags.signbit().equal(expected.signbit())):
            return False
    return True


class Wave(NamedTuple):
    """At most one row per segment: additions that may be done together."""

    segment: Tensor
    row: Tensor
    weight: Tensor | None


def waves(segment: Tensor, row: Tensor, weights: Tensor | None = None) -> list[Wave]:
    """Row row[i] is to be added in segment[i] (ascending); wave d holds the d-th row of every segment.

    All segments advance together, so the work is a few large additions, and yet each segment's sum
    runs in the order of its own rows.
    """
    if not len(segment):
        return []
    counts = torch.bincount(segment)
    place = torch.arange(len(segment)) - (torch.cumsum(counts, 0) - counts)[segment]
    parts = torch.split(torch.argsort(place, stable=True), torch.bincount(place).tolist())
    return [Wave(segment[p], row[p], None if weights is None else weights[p]) for p in parts]


def sums_by_waves(leaf: Tensor, additions: list[Wave], segments: int) -> Tensor:
    """[segments, ...] sums of the leaf's rows, wave after wave, each row times its weight if there are weights."""
    rows = leaf.reshape(len(leaf), -1) if leaf.numel() else leaf.new_empty(len(leaf), 0)
    sums = rows.new_zeros(segments, rows.shape[1])
    size = max(1, _WAVE_VALUES // max(1, rows.shape[1]))
    starts = torch.arange(0, segments + size, size).clamp(max=segments)
    bounds = [torch.searchsorted(wave.segment, starts).tolist() for wave in additions]
    for block, (low, high) in enumerate(itertools.pairwise(starts.tolist())):
        of_block = [(wave, slice(b[block], b[block + 1])) for wave, b in zip(additions, bounds, strict=True)]
        for start in range(0, rows.shape[1], _WAVE_VALUES):
            columns = slice(start, start + _WAVE_VALUES)
            for wave, some in of_block:
                _add(sums[:, columns], rows[:, columns], wave, some, slice(low, high))
    return sums.view(segments, *leaf.shape[1:])


def _add(sums: Tensor, rows: Tensor, wave: Wave, some: slice, block: slice) -> None:
    """Add the rows of a wave that belong to a block of segments."""
    values = rows.index_select(0, wave.row[some])
    if wave.weight is not None:
        values *= wave.weight[some].to(values.dtype).unsqueeze(1)
    if len(values) == block.stop - block.start:  # segments are sorted: this wave has each of them in its place
        sums[block] += values
    else:
        sums.index_add_(0, wave.segment[some], values)
