"""Lines of JSON are those of the standard library, to the byte, and are read as it reads them."""

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from facade.files.json_lines import decoded, encoded

FLOATS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.builds(lambda digits, power: digits * 10.0**power, st.integers(-(10**6), 10**6), st.integers(-12, 18)),
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), FLOATS, st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
    max_leaves=6,
)
ROWS = st.lists(st.dictionaries(st.text(), VALUES, max_size=4), max_size=6)


def plain(rows):
    return "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows).encode()


@given(ROWS)
def test_rows_are_written_as_the_standard_library_writes_them_and_read_as_they_were(rows):
    written = encoded(rows)
    assert written == plain(rows)
    assert [decoded(line) for line in written.splitlines(keepends=True)] == rows


@given(st.lists(FLOATS, max_size=20))
def test_one_odd_number_changes_no_other_line(numbers):
    rows = [{"kind": "round", "train_loss": number, "node3": 1} for number in (0.5, *numbers, 1e-05)]
    assert encoded(rows) == plain(rows)


def test_what_only_the_standard_library_knows_is_written_and_read_by_it():
    rows = [{"large": 10**30}, {1: "number as key"}]
    assert encoded(rows) == plain(rows)
    assert math.isnan(decoded(b'{"loss":NaN}\n')["loss"])
