"""Nothing is silently wrong: a changed bit, changed rows, changed code, and who may read the files."""

import json
import os
import shutil
import stat
import sys

import pytest

from facade import Result, run
from facade.errors import DamagedFileError, StorageError
from facade.files import seals
from facade.files.growing_file import GrowingFile, Mark
from facade.runs import history
from facade.runs.archive import archive
from facade.testing.flips import flip, places, try_flips, use_finished_run, use_stopped_run
from results.conftest import tiny
from runs import stopped, unseal
from surroundings import no_space


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("finished") / "run"
    before = os.umask(0)
    run(tiny(), path)
    os.umask(before)
    return path


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    path = tmp_path_factory.mktemp("stopped") / "run"
    stopped(tiny(), path, 5)
    return path


@pytest.fixture
def copied(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "copied")


def test_a_changed_bit_in_any_file_of_a_finished_run_is_noticed(finished):
    flips = try_flips(finished, use_finished_run, places(finished, 16, seed=1))
    assert [each for each in flips if each.outcome != "noticed"] == []


def test_a_changed_bit_in_any_file_of_a_stopped_run_is_noticed_or_harmless(half):
    flips = try_flips(half, use_stopped_run, places(half, 14, seed=2))
    assert [each for each in flips if each.outcome in ("unnoticed", "crashed")] == []
    harmless = {each.place.file for each in flips if each.outcome == "harmless"}
    assert harmless <= {"checkpoints/000000004.saved", "environment.json"}, "one is spare, one in the checkpoint too"


def test_the_places_are_the_same_for_a_seed_and_are_in_all_files(finished):
    assert places(finished, 20, 3) == places(finished, 20, 3)
    assert {place.file for place in places(finished, 8, 3)} == {path.name for path in finished.iterdir()}


def test_a_use_that_looks_away_is_found_out(finished):
    flips = try_flips(finished, lambda path: (path / "rows.jsonl").read_bytes(), places(finished, 8, seed=1))
    assert [each.place.file for each in flips if each.outcome == "unnoticed"] == ["rows.jsonl"]


def test_rows_changed_before_the_last_checkpoint_send_a_run_back_to_the_one_before(half, finished, tmp_path):
    out = shutil.copytree(half, tmp_path / "run")
    rows = (out / "rows.jsonl").read_bytes()
    flip(out / "rows.jsonl", len(rows) - 3, 0)
    with pytest.warns(UserWarning, match=r"000000005.saved is not used: .* going back to the one before"):
        run(tiny(), out, resume=True)
    assert (out / "rows.jsonl").read_bytes() == (finished / "rows.jsonl").read_bytes()


@pytest.mark.parametrize(
    "options", [["show"], ["report", "--out", "page.html"], ["export", "--node", "0", "-o", "out"]]
)
def test_every_command_refuses_a_damaged_run_in_one_sentence(copied, command, options, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flip(copied / "rows.jsonl", 500, 0)
    flip(copied / "models.safetensors", 5000, 0)
    ended = command(options[0], copied, *options[1:])
    assert ended.code == 2
    assert "is damaged, or was changed: its SHA-256 is" in ended.err
    assert "restore it from a copy, or compute the run again" in ended.err
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "page.html").exists()


def test_an_older_run_is_not_sealed_which_is_said_once_and_is_no_error(copied, command, tmp_path):
    assert "ot sealed" not in command("show", copied).out
    unseal(copied)
    shown = command("show", copied)
    assert (shown.code, shown.out.count("Not sealed: older than checksums")) == (0, 1)
    assert not history.load(copied).sealed
    assert not history.load(archive(copied, tmp_path / "kept")).sealed, "nobody knows whether it was whole"
    Result.load(copied)


def test_the_models_of_an_older_run_must_fit_the_hash_that_its_result_has(copied):
    unseal(copied)
    flip(copied / "models.safetensors", 5000, 0)
    with pytest.raises(DamagedFileError, match=r"models.safetensors is damaged, or was changed"):
        Result.load(copied)


def test_an_archive_is_sealed_anew_and_its_damage_noticed(finished, tmp_path):
    kept = archive(finished, tmp_path)
    assert history.load(kept).sealed
    flip(kept / "rows.jsonl.gz", 30, 2)
    with pytest.raises(DamagedFileError, match=r"rows.jsonl.gz is damaged"):
        history.load(kept)


def test_a_result_that_lost_a_key_of_its_seals_is_damaged_and_not_an_older_one(copied):
    path = copied / "result.json"
    whole = path.read_text()
    for key in ("files", "sha256"):
        path.write_text(whole.replace(f'"{key}"', f'"{key[:-1]}x"'))
        with pytest.raises(DamagedFileError, match=r"result.json"):
            history.load(copied)


def test_an_experiment_that_was_changed_by_hand_is_named_and_used(finished, tmp_path):
    from facade import Experiment

    text = (finished / "experiment.toml").read_text()
    (tmp_path / "mine.toml").write_text(text.replace("seed = 1", "seed = 3"))
    with pytest.warns(UserWarning, match="if it was changed on purpose, remove its last line"):
        assert Experiment.load(tmp_path / "mine.toml").seed == 3


def test_files_of_a_run_are_private_and_an_umask_may_only_forbid_more(finished, tmp_path):
    for path in (finished, *finished.iterdir()):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    before = os.umask(0o277)
    try:
        GrowingFile(tmp_path / "rows").append(b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "rows").stat().st_mode) == 0o400


def test_what_a_full_disk_took_of_an_addition_is_taken_back(tmp_path, monkeypatch):
    file = GrowingFile(tmp_path / "rows")
    file.append(b"first\n")
    mark = file.mark()
    file.path.write_bytes(b"first\nsec")  # what the disk took before it was full
    with monkeypatch.context() as full:
        full.setattr("facade.files.store.appending", lambda path: FullDisk(path))
        with pytest.raises(StorageError, match="No space left"):
            file.append(b"second\n")
    assert file.mark() == mark
    file.append(b"second\n")
    assert file.path.read_bytes() == b"first\nsecond\n"
    assert file.mark() == Mark(13, seals.sha256(b"first\nsecond\n"))


class FullDisk:
    """A file that takes nothing."""

    def __init__(self, path):
        self._path, self.write = path, no_space

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def truncate(self, length):
        os.truncate(self._path, length)


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A user's own algorithm in a module of its own."""
    header = "from dataclasses import dataclass\nfrom facade.algorithms.el import EL\n"
    text = f"{header}\n@dataclass(frozen=True)\nclass Mine(EL):\n    pass\n"
    (tmp_path / "sealed_mine.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / "sealed_mine.py"
    sys.modules.pop("sealed_mine", None)


def test_code_that_changed_between_a_stop_and_a_resume_is_named(own, tmp_path):
    experiment = tiny("algorithm.name=sealed_mine:Mine")
    out = tmp_path / "run"
    stopped(experiment, out, 3)
    stopped(experiment, out, 5)
    began = json.loads((out / "environment.json").read_text())
    own.write_text(own.read_text() + "# changed\n")
    with pytest.warns(UserWarning, match=r"other code than the run had up to round 5 \(sealed_mine:Mine: its"):
        run(experiment, out, resume=True)
    environment = json.loads((out / "environment.json").read_text())
    assert list(began["code"]) == ["sealed_mine:Mine"]
    (change,) = environment["continued"]
    assert change["after_round"] == 5
    assert change["code"] != began["code"]
    Result.load(out)
    own.write_text(own.read_text() + "# and again\n")
    with pytest.warns(UserWarning, match="was computed with is not what is here now"):
        Result.load(out)


def test_of_a_package_all_files_count(tmp_path, monkeypatch):
    from facade.experiment.own_code import own_code

    (tmp_path / "sealed_pack" / "inner").mkdir(parents=True)
    for name in ("__init__.py", "inner/__init__.py", "inner/deep.py"):
        (tmp_path / "sealed_pack" / name).write_text("def source():\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    named = {"data": {"source": "sealed_pack.inner.deep:source", "clusters": "3:1"}, "name": "a:b"}
    assert own_code(named) == {}, "not imported, so not used"
    __import__("sealed_pack.inner.deep")
    before = own_code(named)
    assert list(before) == ["sealed_pack.inner.deep:source"]
    (tmp_path / "sealed_pack" / "__init__.py").write_text("def source():\n    return 1\n")
    assert own_code(named) != before
