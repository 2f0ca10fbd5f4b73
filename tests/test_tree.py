import hashlib
import struct
from typing import NamedTuple

import pytest
import torch

from facade.core import tree


class State(NamedTuple):
    model: dict
    loss: torch.Tensor


def state(rows=3):
    weight = torch.arange(rows * 4, dtype=torch.float32).view(rows, 2, 2)
    return State({"fc": {"weight": weight}, "empty": {}}, torch.arange(rows, dtype=torch.float64))


def equal(one, other):
    one, other = tree.flatten(one), tree.flatten(other)
    return list(one) == list(other) and all(torch.equal(one[path], other[path]) for path in one)


def test_flatten_names_leaves_by_path_and_unflatten_is_its_inverse():
    flat = tree.flatten(state())
    assert list(flat) == ["model/fc/weight", "loss"]
    again = tree.unflatten(flat, state())
    assert isinstance(again, State)
    assert again.model["empty"] == {}
    assert equal(again, state())


def test_map_combines_trees_leaf_by_leaf():
    total = tree.map(lambda a, b: a + 2 * b, state(), state())
    assert isinstance(total, State)
    assert torch.equal(total.loss, 3 * state().loss)
    assert torch.equal(total.model["fc"]["weight"], 3 * state().model["fc"]["weight"])


def test_rows_take_a_part_or_one_without_the_node_axis():
    assert equal(tree.rows(state(5), slice(1, 3)), tree.map(lambda leaf: leaf[1:3], state(5)))
    assert tree.rows(state(), torch.tensor([2, 0])).loss.tolist() == [2, 0]
    assert tree.rows(state(), 1).model["fc"]["weight"].shape == (2, 2)


def test_concatenated_shards_are_the_whole():
    assert equal(tree.concat([tree.rows(state(5), slice(0, 2)), tree.rows(state(5), slice(2, 5))]), state(5))
    assert tree.concat([{}, {}]) == {}


def test_stack_and_repeat_make_a_new_axis():
    one, two = tree.rows(state(), 0), tree.rows(state(), 1)
    assert equal(tree.stack([one, two]), tree.rows(state(), slice(0, 2)))
    assert tree.stack([state(), state()], axis=1).model["fc"]["weight"].shape == (3, 2, 2, 2)
    repeated = tree.repeat(one, 3)
    assert equal(repeated, tree.stack([one, one, one]))
    repeated.loss[0] = 9
    assert repeated.loss.tolist() == [9, 0, 0]


def test_where_decides_row_by_row():
    other = tree.map(torch.zeros_like, state())
    mixed = tree.where(torch.tensor([True, False, True]), state(), other)
    assert mixed.loss.tolist() == [0, 0, 2]
    assert mixed.model["fc"]["weight"].sum((1, 2)).tolist() == [6, 0, 38]


def test_where_decides_row_by_row_of_rows():
    heads, zero = {"weight": torch.ones(2, 3, 4)}, {"weight": torch.zeros(2, 3, 4)}
    some = torch.tensor([[True, False, False], [False, True, True]])
    assert tree.where(some, heads, zero)["weight"].sum(2).tolist() == [[4, 0, 0], [0, 4, 4]]
    one = {"weight": torch.full((2, 1, 4), 2.0)}
    assert tree.where(some, one, zero)["weight"].sum(2).tolist() == [[8, 0, 0], [0, 8, 8]]


def test_where_keeps_the_order_of_what_is_kept():
    ab, ba = {"a": torch.zeros(2), "b": torch.zeros(2)}, {"b": torch.ones(2), "a": torch.ones(2)}
    assert list(tree.where(torch.tensor([True, False]), ba, ab)) == ["a", "b"]


def test_row_bytes_count_one_nodes_part():
    assert tree.row_bytes(state()) == 4 * 4 + 8
    assert tree.row_bytes({}) == 0
    assert tree.row_bytes({"choice": torch.zeros(7, dtype=torch.int64)}) == 8


def test_a_rows_digest_does_not_depend_on_the_other_rows():
    whole = tree.digests(state(5), 5)
    assert tree.digests(tree.rows(state(5), slice(2, 4)), 2) == whole[2:4]
    assert len(set(whole)) == 5


def test_digests_depend_on_names_dtypes_shapes_and_values_and_not_on_order_or_layout():
    leaf = torch.arange(12, dtype=torch.float32).view(1, 3, 4)
    base = tree.digest({"a": leaf, "b": leaf}, 1)
    assert tree.digest({"b": leaf, "a": leaf}, 1) == base
    transposed = leaf.transpose(1, 2).contiguous().transpose(1, 2)
    assert tree.digest({"a": transposed, "b": leaf}, 1) == base
    changed = leaf.clone()
    changed[0, 2, 3] = torch.nextafter(leaf[0, 2, 3], torch.tensor(100.0))
    others = [
        {"a": leaf, "c": leaf},
        {"a": leaf},
        {"a": leaf.double(), "b": leaf},
        {"a": leaf.view(1, 4, 3), "b": leaf},
        {"a": changed, "b": leaf},
    ]
    assert len({base, *(tree.digest(other, 1) for other in others)}) == 6


def test_a_digest_is_sha_256_of_sorted_names_dtypes_shapes_and_little_endian_bytes():
    rows = []
    for i in range(3):
        weight = struct.pack("<4f", *range(4 * i, 4 * i + 4))
        text = b"loss:<f8:()" + struct.pack("<d", i) + b"model/fc/weight:<f4:(2, 2)" + weight
        rows.append(hashlib.sha256(text).hexdigest())
    assert tree.digests(state(), 3) == rows
    assert tree.digest(state(), 3) == hashlib.sha256("".join(rows).encode()).hexdigest()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.bool])
def test_one_element_of_any_dtype_changes_the_digest_of_its_row_alone(dtype):
    leaf = torch.ones(2, 3).to(dtype)
    changed = leaf.clone()
    changed[1, 2] = 0
    before, after = (tree.digests({"x": values}, 2) for values in (leaf, changed))
    assert before[0] == before[1] == after[0] != after[1]
    assert tree.digest({"x": leaf}, 2) != tree.digest({"x": changed}, 2)
