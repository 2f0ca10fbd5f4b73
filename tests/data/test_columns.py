"""Columns of a table as inputs."""

from __future__ import annotations

import numpy as np
import pytest

from facade.data.columns import Column, encode, recognised
from facade.data.errors import DataError

ALL = np.ones(4, np.bool_)
ONE_SITE = np.zeros(4, np.int64)


def test_columns_are_recognised_by_what_they_hold() -> None:
    table = {"age": ["50", "?", "61.5", ""], "sex": ["male", "female", "NA", "male"], "kind": [3.0, "7", 6, "3"]}
    age, sex, kind = recognised(table, categorical=["kind"])
    assert age == Column(name="age", missing=True)
    assert sex == Column(name="sex", categories=["female", "male"], missing=True)
    assert kind == Column(name="kind", categories=["3", "6", "7"])
    assert [*age.inputs, *kind.inputs] == ["age", "age is missing", "kind = 3", "kind = 6", "kind = 7"]


def test_gaps_are_filled_and_numbers_standardised_from_the_training_rows_of_their_site() -> None:
    table = {"v": [1.0, 3.0, None, 100.0, 10.0, None, 30.0, 20.0]}
    training = np.array([True, True, True, False, True, True, True, False])
    site = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    encoded = encode(table, training, site)
    assert encoded.inputs == ["v", "v is missing"]
    # Site 0 trains on 1 and 3 (median and mean 2, deviation 1), site 1 on 10 and 30 (20, 10).
    assert encoded.x[:, 0].tolist() == [-1, 1, 0, 98, -1, 0, 1, 0]
    assert encoded.x[:, 1].tolist() == [0, 0, 1, 0, 0, 1, 0, 0]
    plain = encode(table, training, site, standard=False)
    assert plain.x[:, 0].tolist() == [1, 3, 2, 100, 10, 20, 30, 20]
    assert encoded.x.dtype == np.float32


def test_a_missing_category_becomes_the_most_frequent_one_of_the_site() -> None:
    table = {"c": ["a", "b", "b", None]}
    assert encode(table, ALL, ONE_SITE).x.tolist() == [[1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 1, 1]]
    split = encode(table, ALL, np.array([0, 1, 1, 0]))
    assert split.x[3].tolist() == [1, 0, 1]


def test_a_site_without_any_value_gets_zeros_and_the_indicator() -> None:
    table = {"v": ["", "", "4", "6"], "c": ["", "", "x", "y"]}
    encoded = encode(table, ALL, np.array([0, 0, 1, 1]))
    assert encoded.inputs == ["v", "v is missing", "c = x", "c = y", "c is missing"]
    assert encoded.x[0].tolist() == [0, 1, 0, 0, 1]


def test_a_column_that_is_constant_in_training_is_not_stretched() -> None:
    x = encode({"v": [0.1] * 3 + [0.2]}, np.array([True, True, True, False]), ONE_SITE).x
    assert x[:, 0] == pytest.approx([0, 0, 0, 0.1])


def test_a_site_alone_gets_the_bits_that_it_gets_among_others() -> None:
    random = np.random.default_rng(3)
    values: list[object] = random.normal(40, 9, 300).tolist()
    for gap in random.choice(300, 40, replace=False):
        values[gap] = None
    words = [str(word) for word in random.choice(["p", "q", "r"], 300)]
    table, training, site = {"v": values, "w": words}, random.random(300) < 0.8, random.integers(0, 4, 300)
    whole = encode(table, training, site)
    for number in range(4):
        own = site == number
        cells = {name: [cell for cell, mine in zip(column, own, strict=True) if mine] for name, column in table.items()}
        alone = encode(cells, training[own], np.zeros(own.sum(), np.int64), whole.columns)
        assert np.array_equal(alone.x, whole.x[own])


@pytest.mark.parametrize(
    ("cells", "columns", "said"),
    [
        (["1", "two", "3", "4"], [Column(name="v")], "'two' in row 2 is none"),
        (["1", "inf", "3", "4"], None, "'inf' in row 2; expected finite numbers"),
        (["a", "b", "z", "a"], [Column(name="v", categories=["a", "b"])], "the category 'z' in row 3"),
        (["1", "2", "3", "4"], [Column(name="w")], "there is no column 'w'; the columns are v"),
        (["1", "2", "3", "4"], [], "no column to learn from"),
    ],
)
def test_unusable_cells_are_refused_in_a_sentence(cells: list[object], columns: list[Column] | None, said: str) -> None:
    with pytest.raises(DataError, match=said):
        encode({"v": cells}, ALL, ONE_SITE, columns)


def test_free_text_is_not_taken_for_categories_unless_it_is_named() -> None:
    table = {"id": [f"p{i}" for i in range(101)]}
    with pytest.raises(DataError, match="column 'id' has 101 different texts"):
        recognised(table)
    assert len(recognised(table, ["id"])[0].categories) == 101
    with pytest.raises(DataError, match="no column 'di' to be categorical"):
        recognised(table, ["di"])
