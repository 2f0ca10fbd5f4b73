import numpy as np

from facade import seeds


def test_a_nodes_words_do_not_depend_on_who_else_is_asked_for():
    everyone = seeds.words(7, "train", 3, np.arange(10), 5)
    alone = seeds.words(7, "train", 3, np.array([4]), 5)
    assert np.array_equal(everyone[4:5], alone)


def test_a_longer_draw_begins_with_the_shorter_one():
    nodes = np.arange(3)
    assert np.array_equal(seeds.words(1, "a", 0, nodes, 9)[:, :4], seeds.words(1, "a", 0, nodes, 4))


def test_every_part_of_the_address_matters():
    draws = [
        seeds.words(*address, np.array([node]), 1)[0, 0]
        for address in [(1, "a", 0), (2, "a", 0), (1, "b", 0), (1, "a", 1)]
        for node in (0, 1)
    ]
    assert len(set(draws)) == 8


def test_picks_are_permutations_one_after_the_other():
    for size, count in [(5, 12), (100, 7), (8, 8), (1, 3)]:
        picks = seeds.picks(1, "train", 0, np.arange(6), size, count)
        assert picks.shape == (6, count)
        for row in picks:
            for start in range(0, count, size):
                part = row[start : start + size]
                assert len(set(part)) == len(part)
                assert part.min() >= 0
                assert part.max() < size


def test_picks_cover_all_rows_evenly():
    picks = seeds.picks(1, "train", 0, np.arange(4000), 10, 3)
    counts = np.bincount(picks.ravel(), minlength=10) / 12000
    assert np.abs(counts - 0.1).max() < 0.01


def test_uniform_numbers_are_uniform_and_never_0_or_1():
    drawn = seeds.uniform(1, "x", 0, np.arange(100), 1000)
    assert 0 < drawn.min() < drawn.max() < 1
    assert abs(drawn.mean() - 0.5) < 0.005
    assert abs(drawn.var() - 1 / 12) < 0.001
