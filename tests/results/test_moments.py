"""A finished run is looked at without its rows being read again, and says what they say."""

import json

import numpy as np
import pytest

from facade import Result, run
from facade.errors import DamagedFileError
from facade.files import seals
from facade.runs import history, moments_file
from facade.runs.moments import gathered
from facade.runs.rows import RowsFile
from facade.runs.run_directory import RunDirectory
from facade.testing.flips import flip, plain
from results.conftest import tiny
from runs import stopped, unseal

KINDS = {
    "el": ["algorithm.name=el"],
    "heads": ["algorithm.warmup=0", "algorithm.seeding=none"],
    "survey": ["algorithm.seeding=class-means", "training.rounds=60", "evaluation.every=20", "data.per_class=4"],
    "attacked": ["attack.kind=sign-flip", "attack.nodes=[1]", "guard.rule=clip", "attack.start=2"],
    "no-final-exchange": ["algorithm.name=local"],
    "validated": ["data.validation=0.2", "training.loss=balanced", "evaluation.prior=own"],
}
"""Between them, runs whose rows hold all there is."""


@pytest.fixture(scope="module", params=KINDS)
def finished(request, tmp_path_factory):
    path = tmp_path_factory.mktemp(request.param) / "run"
    run(tiny(*KINDS[request.param]), path)
    return path


@pytest.fixture
def finished_facade(tmp_path):
    run(tiny(), tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def unread(monkeypatch):
    """Whoever reads a row fails."""

    def refuse(self):
        raise AssertionError(f"{self.path} is read")

    with monkeypatch.context() as patch:
        patch.setattr(RowsFile, "_lines", refuse)
        yield patch


def from_rows(path):
    """What the rows alone say, as of a run of a version before."""
    kept = path / moments_file.FILE
    kept.rename(kept.with_suffix(".away"))
    try:
        return plain(history.load(path)), Result.load(path).choices()
    finally:
        kept.with_suffix(".away").rename(kept)


def test_the_moments_of_a_run_say_what_its_rows_say(finished, monkeypatch):
    expected = from_rows(finished)
    monkeypatch.setattr(RowsFile, "_lines", lambda self: pytest.fail("rows are read"))
    np.testing.assert_equal((plain(history.load(finished)), Result.load(finished).choices()), expected)


def test_the_moments_of_rows_that_are_read_make_the_same_file(finished):
    directory = RunDirectory(finished)
    bad = directory.experiment()["attack"]["nodes"]
    again = moments_file.parts(gathered(directory.rows, 4, bad), directory.seals["rows.jsonl"])
    assert b"".join(again) == (finished / moments_file.FILE).read_bytes()


def test_a_run_from_its_start_to_its_table_reads_no_row(unread, command, tmp_path):
    (tmp_path / "tiny.toml").write_text(tiny().toml())
    (tmp_path / "fair.toml").write_text("max_gap = 1.0\n")
    for words in (
        ["run", tmp_path / "tiny.toml", "--out", tmp_path / "run"],
        ["show", tmp_path / "run", "--heads"],
        ["report", tmp_path / "run", "--out", tmp_path / "page.html"],
        ["check", tmp_path / "run", "--contract", tmp_path / "fair.toml"],
    ):
        ended = command(*words)
        assert ended.code == 0, ended.err


def test_a_resumed_run_reads_its_rows_once_before_it_goes_on(tmp_path, monkeypatch):
    stopped(tiny(), tmp_path / "run", 5)
    before = (tmp_path / "run" / "rows.jsonl").read_bytes()
    read, lines = [], RowsFile._lines
    monkeypatch.setattr(RowsFile, "_lines", lambda self: read.append(self.path.read_bytes()) or lines(self))
    run(tiny(), tmp_path / "run", resume=True)
    assert read == [before]


def test_the_rows_of_an_older_run_are_read(finished_facade, unread):
    unseal(finished_facade)
    with pytest.raises(AssertionError, match=r"rows.jsonl is read"):
        history.load(finished_facade)


def test_damaged_moments_are_said_and_the_rows_read(finished_facade):
    expected = plain(history.load(finished_facade))
    for byte in (3, 2000):
        flip(finished_facade / moments_file.FILE, byte, 0)
        with pytest.warns(UserWarning, match=r"moments.safetensors is damaged, or was changed; the rows, which are"):
            np.testing.assert_equal(plain(history.load(finished_facade)), expected)


def test_damaged_rows_are_refused_though_the_moments_are_whole(finished_facade):
    flip(finished_facade / "rows.jsonl", 500, 0)
    with pytest.raises(DamagedFileError, match=r"rows.jsonl is damaged"):
        history.load(finished_facade)


def replace_moments(path, content):
    """Give a run other moments, which its seals know."""
    directory = RunDirectory(path)
    sealed = {**directory.seals, moments_file.FILE: seals.sha256(content)}
    (path / moments_file.FILE).write_bytes(content)
    (path / "result.json").write_bytes(seals.sealed_json(directory.read("result.json"), sealed))


def test_moments_of_other_rows_are_not_used(finished_facade, unread):
    moments = (finished_facade / moments_file.FILE).read_bytes()
    rows = RunDirectory(finished_facade).seals["rows.jsonl"]
    replace_moments(finished_facade, moments.replace(rows.encode(), seals.sha256(b"other rows").encode()))
    with pytest.raises(AssertionError, match=r"rows.jsonl is read"):
        history.load(finished_facade)


def test_moments_of_another_version_are_not_used(finished_facade, unread, monkeypatch):
    history.load(finished_facade)
    monkeypatch.setattr(moments_file, "_FORMAT", moments_file._FORMAT + 1)
    with pytest.raises(AssertionError, match=r"rows.jsonl is read"):
        history.load(finished_facade)


def test_moments_that_some_node_left_out_are_named_from_the_file_too(finished_facade):
    rows = [json.loads(line) for line in (finished_facade / "rows.jsonl").read_text().splitlines()]
    there = [row for row in rows if (row["kind"], row["round"], row["node"]) != ("round", 2, 1)]
    kept = moments_file.read(b"".join(moments_file.parts(gathered(there, 4), "1")), "1")
    assert kept.incomplete == [(2, "round", 3)]
    assert kept.rounds == [1, 3, 4, 5, 6]


def test_a_run_without_a_directory_tells_its_choices_from_its_rows(finished_facade):
    assert run(tiny()).choices() == Result.load(finished_facade).choices()
