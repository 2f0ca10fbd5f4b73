"""All randomness of a run, addressed by (seed, purpose, round, node) and never drawn from a stream.

Whoever asks for the same address gets the same numbers, whichever process it runs in, whatever was
drawn before. That is why splitting nodes over processes, resuming, or losing a message changes
nothing that anybody else draws. Draws are vectorised over nodes: one SHA-256 per (seed, purpose,
round), then SplitMix64 over nodes and counters.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from facade.core.types import Ids

Words = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_BELOW_ONE = 1 - 2.0**-53


def key(seed: int, purpose: str, *ids: int) -> int:
    """64 bits for one address."""
    text = "/".join(["facade", str(seed), purpose, *(str(i) for i in ids)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def _mix(words: Words) -> Words:
    """SplitMix64's finaliser: a bijection of 64 bits without visible structure."""
    words = (words ^ (words >> np.uint64(30))) * _MIX_1
    words = (words ^ (words >> np.uint64(27))) * _MIX_2
    return words ^ (words >> np.uint64(31))


def _keys(base: int, ids: Ids) -> Words:
    return _mix(np.uint64(base) + (ids.astype(np.uint64) + np.uint64(1)) * _GOLDEN)


def words(seed: int, purpose: str, round: int, nodes: Ids, count: int) -> Words:
    """[len(nodes), count] uniform 64-bit words; row i depends on nodes[i] alone."""
    keys = _keys(key(seed, purpose, round), np.atleast_1d(nodes))
    counters = (np.arange(count, dtype=np.uint64) + np.uint64(1)) * _GOLDEN
    return _mix(keys[:, None] + counters[None, :])


def uniform(seed: int, purpose: str, round: int, nodes: Ids, count: int) -> NDArray[np.float64]:
    """[len(nodes), count] floats in the open interval (0, 1)."""
    return _open_interval(words(seed, purpose, round, nodes, count))


def pair_uniform(seed: int, purpose: str, round: int, first: Ids, second: Ids) -> NDArray[np.float64]:
    """One float in (0, 1) for every ordered pair (first[e], second[e])."""
    keys = _keys(key(seed, purpose, round), first)
    return _open_interval(_mix(keys + (second.astype(np.uint64) + np.uint64(1)) * _GOLDEN))


def _open_interval(drawn: Words) -> NDArray[np.float64]:
    """Words as floats in (0, 1); the very largest would round up to 1 and is held below it."""
    return np.minimum(((drawn >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53, _BELOW_ONE)


def permutation(seed: int, purpose: str, size: int) -> Ids:
    """A random order of 0..size-1 that belongs to the whole run, e.g. of a data set's rows."""
    keys = words(seed, purpose, 0, np.zeros(1, np.int64), size)[0]
    return np.argsort(keys, kind="stable")


def picks(seed: int, purpose: str, round: int, nodes: Ids, size: int, count: int) -> Ids:
    """[len(nodes), count] row numbers below `size`: fresh permutations of a node's rows, one after
    the other, cut off after `count`.

    A permutation is the order of random keys. The row number sits in a key's low bits, so keys are
    unique and the order does not depend on how a library sorts.
    """
    repeats = -(-count // size)
    low = np.uint64((1 << max(size - 1, 1).bit_length()) - 1)
    keys = words(seed, purpose, round, nodes, repeats * size).reshape(len(nodes), repeats, size)
    keys = (keys & ~low) | np.arange(size, dtype=np.uint64)
    if count < size // 4:
        keys = np.partition(keys, count, axis=-1)[..., :count]
    keys.sort(axis=-1)
    return (keys & low).reshape(len(nodes), -1)[:, :count].astype(np.int64)


_GLOBAL_TORCH = threading.RLock()


@contextlib.contextmanager
def global_torch(seed: int, purpose: str, *ids: int) -> Iterator[None]:
    """Torch's global generator, put at an address for the duration: layers initialise from it. There
    is one for all threads, so one of them at a time has it."""
    import torch  # here, because who only asks which messages are lost need not wait for it

    with _GLOBAL_TORCH, torch.random.fork_rng(devices=[]):
        torch.manual_seed(key(seed, purpose, *ids) >> 1)
        yield
