"""What a run found, kept without its models."""

import gzip
import shutil

import pytest

from facade import Result, run
from facade.errors import RunDirectoryError, StorageError
from facade.runs import history
from facade.runs.archive import archive
from results.conftest import tiny
from runs import unseal


def files(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_an_archived_run_says_what_the_run_says(digits_runs, tmp_path, command):
    kept = archive(digits_runs / "facade-1", tmp_path / "results")
    there, here = history.load(digits_runs / "facade-1"), history.load(kept)
    assert (here.final.confusion == there.final.confusion).all()
    assert (here.choice == there.choice).all()
    assert here.point_hash == there.point_hash
    shown, wanted = (command("show", path, "--json") for path in (kept, digits_runs / "facade-1"))
    assert shown.code == 0, shown.err
    assert shown.out.replace(str(kept), "") == wanted.out.replace(str(digits_runs / "facade-1"), "")


def test_archiving_twice_gives_the_same_bytes_and_no_model(digits_runs, tmp_path):
    once, twice = (archive(digits_runs / "el-1", tmp_path / name) for name in ("one", "two"))
    assert files(once) == files(twice)
    assert set(files(once)) == {
        "experiment.toml", "federation.json", "environment.json", "timings.jsonl", "rows.jsonl.gz", "result.json",
    }  # fmt: skip


def test_the_run_one_is_in_is_archived_under_its_name(digits_runs, tmp_path, monkeypatch):
    monkeypatch.chdir(digits_runs / "el-1")
    assert archive(".", str(tmp_path)) == tmp_path / "el-1"


def test_an_archive_does_not_say_where_things_were_on_this_machine(tmp_path):
    from facade import run

    run(tiny(f"data.root={tmp_path / 'secret'}"), tmp_path / "runs" / "mine")
    kept = archive(tmp_path / "runs" / "mine", tmp_path / "results")
    for name, content in files(kept).items():
        text = gzip.decompress(content) if name.endswith(".gz") else content
        assert str(tmp_path).encode() not in text, name


def test_models_of_an_archived_run_are_refused_with_a_remedy(digits_runs, tmp_path):
    kept = archive(digits_runs / "el-1", tmp_path)
    with pytest.raises(RunDirectoryError, match="not its models; compute it again: facade run"):
        Result.load(kept)


def test_only_finished_runs_are_archived(tmp_path):
    with pytest.raises(RunDirectoryError, match="no finished run"):
        archive(tmp_path / "nothing", tmp_path / "results")
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("damage", [lambda b: b[:-20], lambda b: b"rows" + b, lambda b: b[:40] + b"\0" * 8 + b[48:]])
def test_damaged_rows_are_refused_with_a_sentence(digits_runs, tmp_path, damage):
    kept = archive(digits_runs / "el-1", tmp_path)
    path = kept / "rows.jsonl.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(RunDirectoryError, match=r"rows.jsonl.gz.*damaged"):
        history.load(kept)


def test_a_run_of_another_experiment_is_not_written_over(digits_runs, tmp_path):
    kept = archive(digits_runs / "el-1", tmp_path)
    shutil.copytree(digits_runs / "facade-1", tmp_path / "runs" / "el-1")
    with pytest.raises(RunDirectoryError, match="keeps a run of another experiment"):
        archive(tmp_path / "runs" / "el-1", tmp_path)
    assert 'name = "el"' in (kept / "experiment.toml").read_text()
    with pytest.raises(RunDirectoryError, match="is archived already"):
        archive(kept, tmp_path / "again")


def test_a_run_older_than_a_setting_is_still_the_same(tmp_path):
    run(tiny(), tmp_path / "run")
    unseal(tmp_path / "run")
    kept = archive(tmp_path / "run", tmp_path / "kept")
    for file in (kept / "experiment.toml", tmp_path / "run" / "experiment.toml"):
        lines = file.read_text().splitlines(True)
        file.write_text("".join(line for line in lines if not line.startswith("revival")))
    assert archive(tmp_path / "run", tmp_path / "kept") == kept
    with pytest.raises(RunDirectoryError, match="already holds a run of this experiment; add `resume=True`"):
        run(tiny(), tmp_path / "run")


def test_a_place_that_cannot_be_written_is_a_sentence(digits_runs, tmp_path):
    (tmp_path / "taken").touch()
    with pytest.raises(StorageError, match="could not be written"):
        archive(digits_runs / "el-1", tmp_path / "taken")
