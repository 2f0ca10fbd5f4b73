"""Operations over trees: nested dicts and NamedTuples whose leaves are tensors with one row per node.

Everything that moves or persists state (slicing a shard, mixing, checkpoints, hashes) is one of
these functions, so an algorithm may keep what state it likes, of the types in DTYPES.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

Params = dict[str, Tensor]
"""Weights and float buffers by name; with a leading axis, one row per node."""

DTYPES = {
    torch.float64: "F64", torch.int64: "I64", torch.float32: "F32", torch.int32: "I32", torch.float16: "F16",
    torch.int16: "I16", torch.uint8: "U8", torch.int8: "I8", torch.bool: "BOOL",
}  # fmt: skip
"""What leaves of a state may be, and what safetensors calls them."""

T = TypeVar("T")


def map(function: Callable[..., Tensor], tree: T, *others: T) -> T:
    """`function` applied leaf by leaf to trees of the same structure."""
    if isinstance(tree, Tensor):
        return function(tree, *others)  # type: ignore[return-value]
    if isinstance(tree, dict):
        return {k: map(function, v, *(o[k] for o in others)) for k, v in tree.items()}  # type: ignore[index, return-value]
    return type(tree)(*(map(function, *parts) for parts in zip(tree, *others, strict=True)))  # type: ignore[call-overload]


def flatten(tree: Any, prefix: str = "") -> Params:
    """Leaves by path, e.g. `heads/fc.weight`; `unflatten` is the inverse."""
    return dict(_leaves(tree, prefix))


def _leaves(tree: Any, path: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(tree, Tensor):
        yield path, tree
        return
    for name, child in _children(tree):
        yield from _leaves(child, f"{path}/{name}" if path else name)


def _children(tree: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(tree, dict):
        yield from tree.items()
    else:
        yield from zip(tree._fields, tree, strict=True)


def unflatten(flat: Params, like: T, prefix: str = "") -> T:
    """The tree of `like`'s structure whose leaves are taken from `flat` by path."""
    if isinstance(like, Tensor):
        return flat[prefix]  # type: ignore[return-value]
    parts = {k: unflatten(flat, v, f"{prefix}/{k}" if prefix else k) for k, v in _children(like)}
    return parts if isinstance(like, dict) else type(like)(**parts)  # type: ignore[return-value]


def rows(tree: T, index: Tensor | slice | int) -> T:
    """The given rows of every leaf; an int gives that row without the node axis."""
    return map(lambda leaf: leaf[index], tree)


def repeat(tree: T, count: int) -> T:
    """One tree without a node axis, `count` times along a new first axis."""
    return map(lambda leaf: leaf.unsqueeze(0).repeat(count, *([1] * leaf.dim())), tree)


def stack(trees: Sequence[T], axis: int = 0) -> T:
    """Trees of the same structure side by side along a new axis."""
    return map(lambda *leaves: torch.stack(leaves, axis), *trees)


def concat(trees: Sequence[T]) -> T:
    """The rows of several trees, one after the other."""
    return map(lambda *leaves: torch.cat(leaves), *trees) if len(trees) > 1 else trees[0]


def where(rows: Tensor, yes: T, no: T) -> T:
    """Row by row: `yes` where `rows` ([S], or [S, k] for rows in rows) holds, else `no`, in the order of its names."""
    return map(lambda b, a: torch.where(rows.view(*rows.shape, *([1] * (b.dim() - rows.dim()))), a, b), no, yes)


def row_bytes(tree: Any) -> int:
    """Bytes of one row: what one node's part of the tree weighs on the wire."""
    return sum(leaf[0].numel() * leaf.element_size() for leaf in flatten(tree).values())


def digests(tree: Any, count: int) -> list[str]:
    """SHA-256 of each of the `count` rows: names sorted, dtype, shape, little-endian bytes."""
    hashes = [hashlib.sha256() for _ in range(count)]
    for name, leaf in sorted(flatten(tree).items()):
        array = leaf.detach().cpu().contiguous().numpy()
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        header = f"{name}:{array.dtype.str}:{array.shape[1:]}".encode()
        for digest, row in zip(hashes, array, strict=True):
            digest.update(header)
            digest.update(row.data)
    return [digest.hexdigest() for digest in hashes]


def digest(tree: Any, count: int) -> str:
    """SHA-256 over the rows' SHA-256 values in row order."""
    return joint(digests(tree, count))


def joint(digests: Sequence[str]) -> str:
    """SHA-256 over SHA-256 values."""
    return hashlib.sha256("".join(digests).encode()).hexdigest()
