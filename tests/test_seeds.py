import numpy as np

from facade.core import seeds


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


def test_draws_equal_the_published_words():
    # Another value would change every run that was ever made: results kept, runs to be resumed.
    nodes = np.array([0, 5])
    assert seeds.words(1, "train", 3, nodes, 2).tolist() == [
        [0x9C63E246BFB1F40E, 0x67FFCBE1CFC23791],
        [0x09407DBF37A3B446, 0xBA1ADE52A1F82048],
    ]
    assert seeds.picks(1, "train", 3, nodes, 7, 10).tolist() == [
        [3, 6, 1, 2, 0, 5, 4, 3, 5, 1],
        [0, 2, 5, 6, 1, 4, 3, 5, 2, 1],
    ]
    assert seeds.picks(1, "train", 3, nodes, 100, 4).tolist() == [[38, 91, 18, 65], [0, 99, 25, 33]]
    assert seeds.permutation(0, "digits", 8).tolist() == [0, 1, 3, 5, 2, 7, 6, 4]
    pairs = seeds.pair_uniform(1, "loss", 3, np.array([0, 1]), np.array([1, 0]))
    assert pairs.tolist() == [0.36315436857258104, 0.2957659262274365], "sender and receiver are not the same"
    assert seeds.key(1, "init", 0) == 0x588F6EC9F4F7C974


def test_uniform_numbers_are_below_1_whatever_is_drawn():
    ends = seeds._open_interval(np.array([0, 2**64 - 1], np.uint64))
    assert 0 < ends[0] < ends[1] < 1
