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

_DTYPES = {
    "I64": torch.int64, "F64": torch.float64, "F32": torch.float32, "I32": torch.int32, "BF16": torch.bfloat16,
    "F16": torch.float16, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
"""By what safetensors calls them, in the order in which it writes tensors."""
_PLACES = {dtype: (place, code) for place, (code, dtype) in enumerate(_DTYPES.items())}


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
    header: dict[str, Any] = {} if facts is None else {"__metadata__": {"facade": json.dumps(facts)}}
    entries = placed(piecewise)
    text = json.dumps(header | entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name in entries:
        for piece in piecewise[name].pieces():
            yield piece.detach().contiguous().view(-1).view(torch.uint8).numpy().data


def placed(piecewise: PiecewiseTree) -> dict[str, dict[str, Any]]:
    """What a header says of every tensor, in the order in which they stand in a file."""
    entries, end = {}, 0
    for name, tensor in sorted(piecewise.items(), key=lambda item: (_PLACES[item[1].dtype], item[0])):
        start, end = end, end + tensor.dtype.itemsize * int(np.prod(tensor.shape))
        code = _PLACES[tensor.dtype][1]
        entries[name] = {"dtype": code, "shape": list(tensor.shape), "data_offsets": [start, end]}
    return entries


def read_file(content: memoryview) -> tuple[Params, dict[str, Any]]:
    """(tensors, facts) of a file; the tensors are views of the content and read when used."""
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(bytes(content[8:start]))
    facts = json.loads(header.pop("__metadata__")["facade"])
    return views(content[start:], header), facts


def views(content: memoryview, entries: dict[str, dict[str, Any]]) -> Params:
    """The tensors of which a header says where they stand in the content after it."""
    return {name: _view(content, **entry) for name, entry in entries.items()}


def _view(content: memoryview, dtype: str, shape: list[int], data_offsets: list[int]) -> Tensor:
    count = int(np.prod(shape))
    if not count:
        return torch.empty(shape, dtype=_DTYPES[dtype])
    return torch.frombuffer(content, dtype=_DTYPES[dtype], count=count, offset=data_offsets[0]).view(shape)
