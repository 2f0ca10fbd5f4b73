from typing import NamedTuple

import pytest
import torch

from facade.core import tree
from facade.core.messages import (
    EVERYONE,
    Deliveries,
    Edges,
    Inbox,
    delivered,
    mean,
    means,
    per_row,
    totals,
    weighted,
)
from facade.core.sums import bags_add_in_order, row_sums, sums_by_waves, waves

DTYPES = [torch.float32, torch.float64]
SENDERS = torch.tensor([0, 2, 3, 5, 7, 8, 9])
"""Ids of the pooled messages: rows and ids are different things."""
OWN = torch.tensor([1, 4, 5])
"""The shard's nodes 2, 7 and 8."""


class Message(NamedTuple):
    core: dict
    scale: torch.Tensor


def pool(dtype, seed=0):
    draw = torch.Generator().manual_seed(seed)
    scaled = 10.0 ** torch.randint(-1, 2, (len(SENDERS), 1, 1), generator=draw)
    return Message(
        {"weight": (torch.randn(len(SENDERS), 4, 3, generator=draw) * scaled).to(dtype)},
        torch.randn(len(SENDERS), generator=draw).to(dtype),
    )


def inbox(messages, pairs):
    receiver, message = zip(*sorted(pairs), strict=True) if pairs else ((), ())
    heard = Deliveries(torch.tensor(receiver, dtype=torch.int64), torch.tensor(message, dtype=torch.int64))
    return Inbox(messages, SENDERS, OWN, heard)


SOME = [(0, 6), (0, 0), (0, 3), (1, 1), (1, 5), (1, 0), (1, 2), (1, 3), (1, 6)]
"""Row 2 hears nobody."""
ALL = [(row, message) for row in range(3) for message in range(7) if message != OWN[row]]


def members_of(row, pairs):
    return sorted([int(OWN[row])] + [message for receiver, message in pairs if receiver == row])


def slow_sum(leaf, rows):
    total = torch.zeros_like(leaf[0])
    for row in rows:
        total = total + leaf[row]
    return total


def assert_equal(one, other):
    one, other = tree.flatten(one), tree.flatten(other)
    assert one.keys() == other.keys()
    for path in one:
        assert one[path].dtype == other[path].dtype
        assert torch.equal(one[path], other[path]), path


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pairs", [SOME, ALL, []])
def test_the_mean_adds_in_ascending_id_with_self_in_its_place_and_then_divides(dtype, pairs):
    messages = pool(dtype)
    found = mean(inbox(messages, pairs), messages)
    rows = [members_of(row, pairs) for row in range(3)]
    assert_equal(found, tree.map(lambda leaf: torch.stack([slow_sum(leaf, r) / len(r) for r in rows]), messages))


@pytest.mark.parametrize("width", [1, 20_000, 70_000])
def test_large_messages_are_added_in_the_same_order(width):
    leaf = torch.randn(7, width, generator=torch.Generator().manual_seed(1))
    group = torch.tensor([0, 1, 1, 0, 1, 0, 1])
    found = totals(inbox(leaf, SOME), leaf, group, 2)
    for row in range(3):
        for g in range(2):
            rows = [m for m in members_of(row, SOME) if group[m] == g]
            assert torch.equal(found.sums[row, g], slow_sum(leaf, rows))
    box = inbox(leaf, SOME)
    members = box.members()
    weights = torch.arange(1, len(members.receiver) + 1, dtype=torch.float32)
    halves = weighted(box, leaf, members, 1 / weights)
    for row in range(3):
        total = torch.zeros(width)
        for receiver, message, weight in zip(*members, 1 / weights, strict=True):
            total = total + weight * leaf[message] if receiver == row else total
        assert torch.equal(halves[row], total)


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("dtype", [*DTYPES, torch.int64])
def test_segments_of_any_length_are_summed_in_the_order_of_their_rows(dtype, in_order, monkeypatch):
    monkeypatch.setattr("facade.core.sums.bags_add_in_order", lambda dtype: in_order)
    monkeypatch.setattr("facade.core.sums._BLOCK_VALUES", 10_000)  # several blocks of segments
    draw = torch.Generator().manual_seed(2)
    counts = torch.tensor([3, 0, 1, 90, 7, 0])
    row = torch.randint(0, 40, (int(counts.sum()),), generator=draw)
    for shape in [(40,), (40, 0), (40, 3, 5), (40, 4099)]:
        leaf = (1e3 * torch.randn(shape, generator=draw)).to(dtype)
        found = row_sums(leaf, row, counts)
        for segment, rows in enumerate(torch.split(row, counts.tolist())):
            assert torch.equal(found[segment], slow_sum(leaf, rows))


def test_torch_adds_the_rows_of_a_bag_in_order():
    assert bags_add_in_order(torch.float32)
    assert bags_add_in_order(torch.float64)


def test_a_library_that_adds_in_another_order_is_found_out(monkeypatch):
    def pairs_first(members, leaf, first, mode):
        parts = torch.tensor_split(leaf[members], first[1:])
        return torch.stack([part.sum(0) for part in parts])

    monkeypatch.setattr(torch.nn.functional, "embedding_bag", pairs_first)
    assert not bags_add_in_order.__wrapped__(torch.float32)


def test_negative_zeros_add_up_to_zero_however_they_are_added():
    leaf, counts = torch.full((3, 8), -0.0), torch.tensor([1, 2])
    row = torch.tensor([0, 1, 2])
    by_waves = sums_by_waves(leaf, waves(torch.tensor([0, 1, 1]), row), 2)
    assert not row_sums(leaf, row, counts).signbit().any()
    assert not by_waves.signbit().any()


def test_the_order_of_addition_matters_for_the_bits():
    messages = pool(torch.float32)
    forward = slow_sum(messages.core["weight"], range(7))
    assert not torch.equal(forward, slow_sum(messages.core["weight"], reversed(range(7))))


@pytest.mark.parametrize("dtype", DTYPES)
def test_everyone_equals_listing_all_edges_bit_for_bit(dtype):
    messages = pool(dtype)
    group = torch.tensor([2, 0, 2, 2, 0, 3, 0])
    listed, everyone = inbox(messages, ALL), Inbox(messages, SENDERS, OWN, EVERYONE)
    assert_equal(mean(everyone, messages), mean(listed, messages))
    assert_equal(totals(everyone, messages, group, 5), totals(listed, messages, group, 5))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pairs", [SOME, ALL, []])
@pytest.mark.parametrize("seed", range(3))
def test_totals_equal_slow_loops_also_where_a_group_is_empty(dtype, pairs, seed):
    messages = pool(dtype, seed)
    group = torch.randint(0, 4, (7,), generator=torch.Generator().manual_seed(seed))
    found = totals(inbox(messages, pairs), messages, group, 5)
    for row in range(3):
        for g in range(5):
            rows = [m for m in members_of(row, pairs) if group[m] == g]
            assert found.counts[row, g] == len(rows)
            assert_equal(
                tree.map(lambda leaf, row=row, g=g: leaf[row, g], found.sums),
                tree.map(lambda leaf, rows=rows: slow_sum(leaf, rows), messages),
            )
    assert (found.counts[:, 4] == 0).all()
    assert not found.sums.core["weight"][:, 4].any()


def test_means_divide_by_the_counts_and_leave_empty_groups_at_zero():
    messages = pool(torch.float64)
    total = totals(inbox(messages, SOME), messages, torch.tensor([0, 0, 1, 1, 1, 0, 1]), 3)
    sums = total.sums.scale.clone()
    found = means(total)
    for row in range(3):
        for g in range(3):
            count = int(total.counts[row, g])
            assert torch.equal(found.scale[row, g], sums[row, g] / max(count, 1))
    assert not found.core["weight"][:, 2].any()


def test_totals_for_everyone_may_be_changed_node_by_node():
    messages = pool(torch.float32)
    total = totals(Inbox(messages, SENDERS, OWN, EVERYONE), messages, torch.zeros(7, dtype=torch.int64), 1)
    total.sums.scale[0] += 1
    assert total.sums.scale[0] != total.sums.scale[1]


@pytest.mark.parametrize("dtype", DTYPES)
def test_weighted_sums_run_in_the_order_of_the_members(dtype):
    messages = pool(dtype)
    box = inbox(messages, SOME)
    members = box.members()
    weights = torch.rand(len(members.receiver), dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = weighted(box, messages, members, weights)
    for row in range(3):
        total = torch.zeros(4, 3, dtype=dtype)
        for receiver, message, weight in zip(*members, weights, strict=True):
            if receiver == row:
                total = total + weight.to(dtype) * messages.core["weight"][message]
        assert torch.equal(found.core["weight"][row], total)


def test_mixing_leaves_the_pool_as_it_was():
    messages = pool(torch.float32)
    before = tree.map(torch.clone, messages)
    box = inbox(messages, SOME)
    members = box.members()
    mean(box, messages)
    weighted(box, messages, members, torch.full((len(members.receiver),), 0.5))
    totals(box, messages, torch.zeros(7, dtype=torch.int64), 2)
    assert_equal(messages, before)


def test_members_are_the_edges_with_self_in_its_place():
    members = inbox(pool(torch.float32), SOME).members()
    found = list(zip(*(part.tolist() for part in members), strict=True))
    assert found == [(row, m) for row in range(3) for m in members_of(row, SOME)]


def test_everyones_inbox_has_no_members_to_list():
    with pytest.raises(TypeError, match="everyone's messages arrived"):
        Inbox(pool(torch.float32), SENDERS, OWN, EVERYONE).members()


def test_an_edge_is_delivered_from_the_row_of_its_senders_message():
    edges = Edges(torch.tensor([0, 0, 2]), SENDERS[[1, 4, 6]])
    assert [part.tolist() for part in delivered(edges, SENDERS)] == [[0, 0, 2], [1, 4, 6]]
    assert delivered(EVERYONE, SENDERS) is EVERYONE


def test_waves_take_one_row_of_every_segment_at_a_time_in_order():
    segment = torch.tensor([0, 0, 0, 2, 2, 5])
    row = torch.tensor([3, 1, 4, 1, 5, 9])
    found = [(s.segment.tolist(), s.row.tolist()) for s in waves(segment, row)]
    assert found == [([0, 2, 5], [3, 1, 9]), ([0, 2], [1, 5]), ([0], [4])]
    assert waves(segment[:0], row[:0]) == []


def test_per_row_shapes_values_to_combine_with_a_leaf():
    leaf = torch.zeros(2, 3, 4, 5, dtype=torch.float64)
    shaped = per_row(torch.tensor([[1, 2, 3], [4, 5, 6]]), leaf)
    assert shaped.shape == (2, 3, 1, 1)
    assert shaped.dtype == torch.float64
