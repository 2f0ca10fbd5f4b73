"""The state of all nodes where one process need not hold it: written to a file, and read from one, a piece at a
time. The file is safetensors, as the library writes it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from facade.core import tree
from facade.core.tree import Params

_DTYPES = {code: dtype for dtype, code in tree.DTYPES.items()}


class PiecewiseTensor(NamedTuple):
    """A tensor [n, ...] over all nodes that comes in pieces."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    pieces: Callable[[], Iterator[Tensor]]
    """Consecutive rows, one piece after the other."""


PiecewiseTree = dict[str, PiecewiseTensor]
"""Tensors by path, as `tree.flatten` names them."""


def in_one_piece(state: Any) -> PiecewiseTree:
    """A tree that lies in this process."""
    return {
        name: PiecewiseTensor(leaf.dtype, tuple(leaf.shape), lambda leaf=leaf: iter([leaf]))  # type: ignore[misc]
        for name, leaf in tree.flatten(state).items()
    }


def joined(piecewise: PiecewiseTree) -> Params:
    """All pieces in this process; what is in one piece is not copied."""
    pieces = {name: list(tensor.pieces()) for name, tensor in piecewise.items()}
    return {name: torch.cat(parts) if len(parts) > 1 else parts[0] for name, parts in pieces.items()}


def file_parts(piecewise: PiecewiseTree, facts: dict[str, Any] | None = None) -> Iterator[bytes | memoryview]:
    """The parts, in order, of a safetensors file; `facts` go into its header."""
    ordered = sorted(piecewise.items(), key=lambda item: (-item[1].dtype.itemsize, item[0]))
    header: dict[str, Any] = {} if facts is None else {"__metadata__": {"facade": json.dumps(facts)}}
    end = 0
    for name, tensor in ordered:
        start, end = end, end + tensor.dtype.itemsize * int(np.prod(tensor.shape))
        header[name] = {"dtype": tree.DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for _, tensor in ordered:
        for piece in tensor.pieces():
            yield piece.detach().contiguous().view(-1).view(torch.uint8).numpy().data


def read_file(content: memoryview) -> tuple[Params, dict[str, Any]]:
    """(tensors, facts) of a file; the tensors are views of the content and read when used."""
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(bytes(content[8:start]))
    facts = json.loads(header.pop("__metadata__")["facade"])
    return {name: _view(content, start, **entry) for name, entry in header.items()}, facts


def _view(content: memoryview, start: int, dtype: str, shape: list[int], data_offsets: list[int]) -> Tensor:
    count = int(np.prod(shape))
    if not count:
        return torch.empty(shape, dtype=_DTYPES[dtype])
    return torch.frombuffer(content, dtype=_DTYPES[dtype], count=count, offset=start + data_offsets[0]).view(shape)
