import hashlib
import os
import resource
import stat
from pathlib import Path

import pytest

from facade.errors import StorageError
from facade.files import store
from facade.files.store import Store
from facade.runs.run_directory import RunDirectory
from results.killing import Lines
from surroundings import no_space


def test_a_store_keeps_the_newest_files_only(tmp_path):
    kept = Store(tmp_path / "s", keep=3)
    for number in (10, 20, 30, 40):
        kept.save(number, f"content {number}".encode())
    assert kept.numbers == [20, 30, 40]
    newest = next(kept.newest_first())
    assert (newest.number, newest.content) == (40, b"content 40")


def test_the_checksum_of_a_stored_file_is_that_of_its_content(tmp_path):
    kept, content = Store(tmp_path), [bytes(3 << 20), b"the rest"]
    stored = kept.write(1, content)
    assert stored.sha256 == hashlib.sha256(b"".join(content)).digest() == next(kept.newest_first()).sha256
    assert (stored.length, stored.path.name) == ((3 << 20) + 8, "000000001.saved")


def test_a_file_of_a_continuation_that_was_given_up_goes_when_another_begins(tmp_path):
    kept = Store(tmp_path / "s")
    for number in (10, 20):
        kept.save(number, b"old")
    kept.save(15, b"new")
    assert kept.numbers == [10, 15]


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "swap footer"])
def test_damage_is_noticed_named_and_stepped_over(tmp_path, damage):
    kept = Store(tmp_path / "s")
    kept.save(1, b"good" * 100)
    bad = kept.save(2, b"bad!" * 100)
    stored = bytearray(bad.read_bytes())
    if damage == "cut":
        stored = stored[:-7]
    elif damage == "flip":
        stored[123] ^= 1
    elif damage == "empty":
        stored = bytearray()
    else:
        stored[-40:] = stored[:40]
    bad.write_bytes(stored)
    with pytest.warns(UserWarning, match=rf"{bad.name} is damaged \(it.*going back"):
        newest = next(kept.newest_first())
    assert (newest.number, newest.content) == (1, b"good" * 100)


def test_a_missing_directory_holds_nothing(tmp_path):
    assert list(Store(tmp_path / "nothing").newest_first()) == []


def test_every_single_flipped_bit_is_noticed(tmp_path):
    kept = Store(tmp_path / "s")
    path = kept.save(1, b"0123456789")
    whole = path.read_bytes()
    for bit in range(8 * len(whole)):
        broken = bytearray(whole)
        broken[bit // 8] ^= 1 << bit % 8
        path.write_bytes(broken)
        with pytest.warns(UserWarning, match="is damaged"):
            assert list(kept.newest_first()) == []


def test_a_full_disk_keeps_the_old_file_and_leaves_no_rest(tmp_path, monkeypatch):
    store.replace(tmp_path / "file", b"old")
    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(StorageError, match="file could not be written: No space left on device"):
        store.replace(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_write_that_the_system_really_cuts_short_keeps_the_last_good_one(tmp_path):
    kept = Store(tmp_path / "s")
    kept.save(1, b"x" * 1000)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(StorageError, match="File too large"):
            kept.save(2, b"y" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [saved.number for saved in kept.newest_first()] == [1]
    assert len(list((tmp_path / "s").iterdir())) == 1


def test_removing_a_store_takes_what_a_crash_left_and_nothing_else(tmp_path):
    kept = Store(tmp_path / "s")
    kept.save(1, b"x")
    (tmp_path / "s" / ".000000002.saved.tmp").write_bytes(b"half")
    kept.remove()
    assert not (tmp_path / "s").exists()
    kept.save(1, b"x")
    (tmp_path / "s" / "mine.txt").write_text("keep")
    kept.remove()
    assert [path.name for path in (tmp_path / "s").iterdir()] == ["mine.txt"]


def test_a_store_that_somebody_else_removes_meanwhile_is_gone(tmp_path, monkeypatch):
    kept, unlink = Store(tmp_path / "s"), Path.unlink
    kept.save(1, b"x")

    def late(path, missing_ok=False):
        unlink(path)
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", late)
    kept.remove()
    assert not (tmp_path / "s").exists()
    kept.remove()


def test_a_file_is_on_the_disk_before_it_gets_its_name_and_the_name_after(tmp_path, monkeypatch):
    done, sync, move = [], os.fsync, os.replace

    def synced(handle):
        done.append("directory" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        sync(handle)

    def moved(old, new):
        done.append("name")
        move(old, new)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", moved)
    store.replace(tmp_path / "f", b"x")
    assert done == ["file", "name", "directory"]


def test_rows_that_a_checkpoint_counts_on_are_on_the_disk(tmp_path, monkeypatch):
    synced, sync = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (synced.append(os.fstat(handle).st_ino), sync(handle)))
    files = RunDirectory(tmp_path)
    files.append("rows.jsonl", [{"round": 1}])
    assert files.mark("rows.jsonl").length > 0
    assert synced == [(tmp_path / "rows.jsonl").stat().st_ino]


def test_the_directory_of_a_file_is_made_and_one_that_cannot_be_is_a_sentence(tmp_path):
    store.replace(tmp_path / "new" / "deep" / "file", b"x")
    assert (tmp_path / "new" / "deep" / "file").read_bytes() == b"x"
    (tmp_path / "taken").touch()
    with pytest.raises(StorageError, match=r"taken/file could not be written: (Not a directory|File exists)"):
        store.replace(tmp_path / "taken" / "file", b"x")


def test_a_place_without_a_name_is_refused_in_a_sentence():
    with pytest.raises(StorageError, match=r"^\. could not be written: it is a directory; name a file"):
        store.replace(Path("."), b"content")


def test_two_writers_of_one_file_never_share_a_temporary_one(tmp_path):
    path = tmp_path / "file"

    def overlapped():
        yield b"first, "
        store.replace(path, b"second")
        assert path.read_bytes() == b"second"
        yield b"and whole"

    store.write(path, overlapped())
    assert path.read_bytes() == b"first, and whole"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_writer_that_fails_leaves_what_another_wrote_meanwhile(tmp_path):
    path = tmp_path / "file"

    def failing():
        yield b"half"
        store.replace(path, b"whole")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.write(path, failing())
    assert path.read_bytes() == b"whole"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_files_can_be_read_by_whom_the_system_lets(tmp_path):
    (tmp_path / "plain").write_bytes(b"x")
    store.replace(tmp_path / "file", b"x")
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_what_a_crash_left_goes_when_the_next_file_is_stored(tmp_path):
    kept = Store(tmp_path / "s")
    kept.save(1, b"x")
    (tmp_path / "s" / ".000000002.saved.0123456789abcdef.tmp").write_bytes(b"half")
    kept.save(2, b"x")
    assert sorted(path.name for path in (tmp_path / "s").iterdir()) == ["000000001.saved", "000000002.saved"]


def test_what_a_crash_left_in_a_run_directory_goes_when_the_run_is_taken_up_and_the_lock_stays(tmp_path):
    (tmp_path / ".result.json.0123456789abcdef.tmp").write_bytes(b"half")
    (tmp_path / ".lock.tmp").touch()
    with RunDirectory(tmp_path).claimed():
        assert [path.name for path in tmp_path.iterdir()] == [".lock.tmp"]


def test_files_in_which_a_process_is_to_be_killed_must_exist():
    with pytest.raises(AssertionError, match=r"the library has no file shelf\.py"):
        Lines(("files/store.py", "shelf.py"))
