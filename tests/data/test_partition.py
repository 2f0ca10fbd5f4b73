import numpy as np
import pytest

from facade.data.partition import PARTITIONS, Pool, held_out
from facade.data.section import DataSection
from facade.errors import ExperimentError

LABELS = np.repeat(np.arange(10), 100)[np.random.default_rng(1).permutation(1000)]


def rows_of(name, nodes=8, seed=1, labels=LABELS, owner=None, **settings):
    data = DataSection(source="given", clusters=str(nodes), partition=name, **settings)
    return PARTITIONS[name](Pool(labels, nodes, seed, data, owner))


def classes(rows):
    return [np.bincount(LABELS[part], minlength=10) for part in rows]


@pytest.mark.parametrize("name", ["stratified", "shuffled", "dirichlet", "shards", "uneven"])
def test_parts_are_disjoint_sorted_and_depend_on_the_seed_alone(name):
    rows = rows_of(name)
    everything = np.concatenate(rows)
    assert len(np.unique(everything)) == len(everything)
    assert all(np.array_equal(part, np.sort(part)) for part in rows)
    assert all(np.array_equal(a, b) for a, b in zip(rows, rows_of(name), strict=True))
    assert any(not np.array_equal(a, b) for a, b in zip(rows, rows_of(name, seed=2), strict=True))


def test_stratified_parts_hold_every_class_alike():
    assert all((count == 12).all() for count in classes(rows_of("stratified")))


def test_stratified_refuses_more_nodes_than_images_of_a_class():
    with pytest.raises(ExperimentError, match="101 nodes cannot share 100 images of class 0"):
        rows_of("stratified", nodes=101)


def test_uneven_parts_are_stratified_ones_of_which_the_first_keep_few_rows():
    rows, whole = rows_of("uneven", few_nodes=3, few_rows=6), rows_of("stratified")
    assert [len(part) for part in rows] == [6] * 3 + [120] * 5
    assert all(np.isin(few, all_).all() for few, all_ in zip(rows, whole, strict=True))
    assert len({tuple(np.searchsorted(all_, few)) for few, all_ in zip(rows[:3], whole, strict=False)}) == 3


def test_a_node_with_fewer_rows_than_asked_for_keeps_them_all():
    assert [len(part) for part in rows_of("uneven", few_nodes=2, few_rows=500)] == [120] * 8


def test_more_small_nodes_than_nodes_are_refused():
    with pytest.raises(ExperimentError, match=r"few_nodes = 9 is more than the 8 nodes"):
        rows_of("uneven", few_nodes=9)


def test_shuffled_parts_are_equally_large():
    assert [len(part) for part in rows_of("shuffled", nodes=7)] == [142] * 7


@pytest.mark.parametrize("name", ["shuffled", "shards"])
def test_more_parts_than_images_are_refused(name):
    with pytest.raises(ExperimentError, match="1000 images cannot be cut into"):
        rows_of(name, nodes=1001)


def test_shards_give_a_node_few_classes():
    rows = rows_of("shards", shards_per_node=2)
    assert [len(part) for part in rows] == [124] * 8
    assert max((count > 0).sum() for count in classes(rows)) <= 4
    assert np.mean([(count > 0).sum() for count in classes(rows_of("shards", shards_per_node=20))]) > 8


def test_dirichlet_leaves_nothing_over():
    assert len(np.concatenate(rows_of("dirichlet"))) == 1000


def test_a_small_alpha_makes_nodes_differ_and_a_large_one_makes_them_alike():
    def spread(alpha):
        return np.std(classes(rows_of("dirichlet", alpha=alpha)), 0).mean()

    assert spread(0.05) > 2 * spread(1.0) > 8 * spread(1000.0)


def test_dirichlet_shares_have_the_right_moments():
    shares = np.concatenate(
        [classes(rows_of("dirichlet", nodes=4, alpha=0.7, seed=seed)) for seed in range(100)]
    ).ravel() / 100  # fmt: skip
    assert abs(shares.mean() - 0.25) < 1e-9
    variance = 0.25 * 0.75 / (4 * 0.7 + 1)
    assert abs(shares.var() - variance) < 0.1 * variance


def test_dirichlet_gives_every_node_an_image_or_says_that_it_cannot():
    assert min(len(part) for part in rows_of("dirichlet", nodes=40, alpha=0.1)) > 0
    with pytest.raises(ExperimentError, match=r"data.alpha = 0.0001 leaves some of 200 nodes without an image"):
        rows_of("dirichlet", nodes=200, alpha=0.0001)


def test_sampled_parts_hold_every_class_and_may_overlap():
    rows = rows_of("sampled", nodes=200, per_class=3)
    assert all((count == 3).all() for count in classes(rows))
    assert len(np.unique(np.concatenate(rows))) < 6000


def test_sampled_nodes_do_not_depend_on_how_many_there_are():
    few, many = rows_of("sampled", nodes=3), rows_of("sampled", nodes=30)
    assert all(np.array_equal(a, b) for a, b in zip(few, many[:3], strict=True))


def test_natural_parts_are_the_owners():
    owner = np.array([1, 0, 1, 2])
    rows = rows_of("natural", nodes=3, labels=np.zeros(4, int), owner=owner)
    assert [part.tolist() for part in rows] == [[1], [0, 2], [3]]
    with pytest.raises(ExperimentError, match="needs a source that says who holds what, but 'given' does not"):
        rows_of("natural")


def test_held_out_rows_are_the_fraction_of_every_class():
    out = held_out(LABELS, 0.29, 1, "validation")
    assert np.bincount(LABELS[out]).tolist() == [29] * 10
    assert held_out(np.arange(3), 0.1, 1, "x", least=1).all()
