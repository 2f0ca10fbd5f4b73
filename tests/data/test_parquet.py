"""Tables in .parquet files, as pyarrow writes them: what their columns become, and what is refused."""

import datetime
import sys

import numpy as np
import pyarrow
import pytest
import torch
from pyarrow import parquet

from data.makers import data
from facade import Experiment, run
from facade.data.errors import DataError
from facade.data.load import load, read

ROWS = 40
PEOPLE = {
    "age": pyarrow.array([None if i % 10 == 3 else 30.5 + 7 * i % 50 for i in range(ROWS)]),
    "visits": pyarrow.array([None if i % 8 == 1 else i % 5 for i in range(ROWS)], pyarrow.int8()),
    "sex": pyarrow.array([None if i % 10 == 7 else "fm"[i // 3 % 2] for i in range(ROWS)]).dictionary_encode(),
    "smokes": pyarrow.array([i % 3 == 0 for i in range(ROWS)]),
    "ward": pyarrow.array([f" {'north' if i % 7 < 3 else 'south'}" for i in range(ROWS)], pyarrow.large_string()),
    "hospital": pyarrow.array(["abcd"[i % 4] for i in range(ROWS)]).dictionary_encode(),
    "sick": pyarrow.array([7 * i % 50 > 25 for i in range(ROWS)]),
}
INPUTS = [
    "age", "age is missing", "visits", "visits is missing", "sex = f", "sex = m", "sex is missing", "smokes = False",
    "smokes = True", "ward = north", "ward = south",
]  # fmt: skip


def write(path, **columns):
    """A table of people, with other columns besides."""
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.table(PEOPLE | columns), path)


def section(root, **fields):
    known = {"path": "people.parquet", "label": "sick", "site": "hospital", "clusters": "unknown"}
    return data(root, "parquet", **(known | fields))


def inputs(made):
    return [name for column in made.columns for name in column.inputs]


def test_numbers_dictionaries_texts_and_yes_or_no_become_inputs(tmp_path):
    write(tmp_path / "people.parquet")
    made = load(section(tmp_path), seed=1)
    assert made.sites == ["a", "b", "c", "d"]
    assert made.classes == ["False", "True"]
    assert inputs(made) == INPUTS
    assert bool(torch.isfinite(made.training.samples.x).all())


def test_a_parquet_file_and_the_same_table_as_text_are_the_same_samples(tmp_path):
    write(tmp_path / "people.parquet")
    cells = pyarrow.table(PEOPLE).to_pydict()
    lines = [",".join("" if cell is None else str(cell) for cell in row) for row in zip(*cells.values(), strict=True)]
    (tmp_path / "people.csv").write_text("\n".join([",".join(cells), *lines]) + "\n")
    one, other = (load(section(tmp_path, path=f"people.{kind}"), seed=1) for kind in ("parquet", "csv"))
    assert one.classes == other.classes
    assert torch.equal(one.training.samples.x, other.training.samples.x)
    assert torch.equal(one.training.samples.y, other.training.samples.y)


def test_a_folder_has_a_parquet_file_per_site(tmp_path):
    for site in ("basel", "lyon"):
        write(tmp_path / "country=ch" / f"{site}.parquet")
    made = load(section(tmp_path, path="country=ch", site="", ignore=["hospital"]), seed=1)
    assert made.sites == ["basel", "lyon"]
    assert inputs(made) == INPUTS, "and nothing is made of the folder's name"


def test_nan_is_no_value_and_infinity_is_refused(tmp_path):
    write(tmp_path / "people.parquet", pulse=pyarrow.array([np.nan] + [60.0] * (ROWS - 1)))
    assert "pulse is missing" in inputs(load(section(tmp_path), seed=1))
    write(tmp_path / "people.parquet", pulse=pyarrow.array([np.inf] + [60.0] * (ROWS - 1)))
    with pytest.raises(DataError, match="column 'pulse' holds 'inf'; expected finite numbers"):
        load(section(tmp_path), seed=1)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pyarrow.array([datetime.datetime(2026, 1, 1)] * ROWS), "datetime, such as 2026-01-01 00:00:00"),
        (pyarrow.array([None] + [datetime.date(2026, 1, 1)] * (ROWS - 1)), "date, such as 2026-01-01"),
        (pyarrow.array([datetime.timedelta(days=1)] * ROWS), "timedelta, such as 1 day"),
        (pyarrow.array([[1, 2]] * ROWS), r"list, such as \[1, 2\]"),
        (pyarrow.array([b"x"] * ROWS), "bytes, such as b'x'"),
    ],
)
def test_what_is_neither_number_nor_text_is_refused_unless_it_is_left_out(tmp_path, values, kind):
    write(tmp_path / "people.parquet", other=values)
    with pytest.raises(DataError, match=f"column 'other' holds values of type {kind}.*; write them as"):
        load(section(tmp_path), seed=1)
    assert inputs(load(section(tmp_path, ignore=["other"]), seed=1)) == INPUTS


def test_row_names_that_pandas_kept_are_no_inputs(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(pyarrow.table(PEOPLE).to_pydict(), index=[7 * i for i in range(ROWS)])
    frame.to_parquet(tmp_path / "people.parquet")
    assert "__index_level_0__" in parquet.read_schema(tmp_path / "people.parquet").names
    assert inputs(load(section(tmp_path), seed=1)) == INPUTS


def test_a_damaged_file_is_refused(tmp_path):
    write(tmp_path / "people.parquet")
    whole = (tmp_path / "people.parquet").read_bytes()
    for damaged in (b"", whole[:-9], b"PAR1" + b"\0" * 40 + b"PAR1"):
        (tmp_path / "people.parquet").write_bytes(damaged)
        with pytest.raises(DataError, match=r"people.parquet cannot be read as a table \(.+\); write it again"):
            read(section(tmp_path))


def test_without_pyarrow_its_extra_is_named(tmp_path, monkeypatch):
    (tmp_path / "people.parquet").touch()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match=r"parquet needs an extra: pip install 'facade-dl\[parquet\]', or write the"):
        read(section(tmp_path))


def test_a_run_trains_on_a_parquet_file(tmp_path):
    write(tmp_path / "people.parquet")
    described = {"source": "parquet", "root": str(tmp_path), "path": "people.parquet", "label": "sick"}
    experiment = Experiment.of(
        {"data": described | {"site": "hospital", "clusters": "unknown"}, "model": {"name": "softmax"}},
        ["topology.degree=2", "training.rounds=2", "algorithm.name=el"],
    )
    assert sorted(run(experiment).summary["sites"]) == ["a", "b", "c", "d"]
