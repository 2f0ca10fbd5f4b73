"""What holds for trees of any structure."""

from typing import NamedTuple

import torch
from hypothesis import given
from hypothesis import strategies as st

from facade.core import tree

ROWS = 4


class Pair(NamedTuple):
    left: object
    right: object


@st.composite
def leaves(draw):
    shape = (ROWS, *draw(st.lists(st.integers(0, 3), max_size=2)))
    dtype = draw(st.sampled_from(list(tree.DTYPES)))
    return torch.randint(0, 2, shape, generator=torch.Generator().manual_seed(draw(st.integers(0, 99)))).to(dtype)


names = st.text("abcdefgh.", min_size=1, max_size=5)
trees = st.recursive(
    leaves(), lambda inner: st.dictionaries(names, inner, max_size=3) | st.builds(Pair, inner, inner), max_leaves=6
)


def same(one, other):
    """Equal leaves under equal names, in the same order."""
    a, b = tree.flatten(one), tree.flatten(other)
    return list(a) == list(b) and all(a[k].dtype == b[k].dtype and torch.equal(a[k], b[k]) for k in a)


@given(trees)
def test_a_tree_comes_back_from_its_leaves(one):
    assert same(tree.unflatten(tree.flatten(one), one), one)


@given(trees, st.integers(0, ROWS))
def test_a_tree_cut_in_two_can_be_put_together(one, at):
    parts = [tree.rows(one, slice(at)), tree.rows(one, slice(at, None))]
    assert same(tree.concat(parts), one)


@given(trees)
def test_rows_side_by_side_are_the_tree(one):
    assert same(tree.stack([tree.rows(one, row) for row in range(ROWS)]), one)


@given(trees, st.lists(st.booleans(), min_size=ROWS, max_size=ROWS))
def test_rows_are_taken_from_the_one_or_the_other(one, which):
    other = tree.map(torch.zeros_like, one)
    mixed = tree.where(torch.tensor(which), one, other)
    for row, ours in enumerate(which):
        assert same(tree.rows(mixed, row), tree.rows(one if ours else other, row))


@given(trees, st.permutations(range(ROWS)))
def test_a_rows_digest_depends_on_that_row_alone(one, order):
    digests = tree.digests(one, ROWS)
    moved = tree.digests(tree.rows(one, torch.tensor(order)), ROWS)
    assert moved == [digests[row] for row in order]


@given(trees)
def test_bytes_are_those_of_one_row(one):
    assert tree.row_bytes(one) * ROWS == sum(leaf.numel() * leaf.element_size() for leaf in tree.flatten(one).values())
