import pytest

from facade.watch import followed_file
from facade.watch.followed_file import FollowedFile


@pytest.fixture
def path(tmp_path):
    return tmp_path / "rows.jsonl"


def added(file):
    """All that is new, however many reads it takes, and whether it begins anew."""
    found = file.read()
    content, anew = found.content, found.anew
    while found.more:
        found = file.read()
        content, anew = content + found.content, anew or found.anew
    return content, anew


def append(path, content):
    with path.open("ab") as file:
        file.write(content)


def test_nothing_is_read_twice_and_half_a_line_is_waited_for(path):
    file = FollowedFile(path)
    assert added(file) == (b"", False)
    append(path, b'{"a":1}\n{"b"')
    assert added(file) == (b'{"a":1}\n', False)
    assert added(file) == (b"", False)
    append(path, b":2}\n")
    assert added(file) == (b'{"b":2}\n', False)


def test_a_file_that_was_cut_is_read_from_its_beginning(path):
    append(path, b"one\ntwo\nthree\n")
    file = FollowedFile(path)
    added(file)
    path.write_bytes(b"one\n")
    assert added(file) == (b"one\n", True)
    append(path, b"other\n")
    assert added(file) == (b"other\n", False)


def test_a_file_that_was_cut_and_has_grown_to_the_same_bytes_is_the_same(path):
    append(path, b"one\ntwo\n")
    file = FollowedFile(path)
    added(file)
    path.write_bytes(b"one\ntwo\nthree\n")
    assert added(file) == (b"three\n", False)


def test_a_file_that_was_cut_and_has_grown_to_other_bytes_is_another(path):
    append(path, b"one\ntwo\n")
    file = FollowedFile(path)
    added(file)
    path.write_bytes(b"one\nTWO\nthree\n")
    assert added(file) == (b"one\nTWO\nthree\n", True)


def test_another_file_in_its_place_is_noticed_and_so_is_none(path):
    append(path, b"one\n")
    file = FollowedFile(path)
    added(file)
    path.with_name("new").write_bytes(b"one\ntwo\n")
    path.with_name("new").rename(path)
    assert added(file) == (b"one\ntwo\n", True)
    path.unlink()
    assert added(file) == (b"", True)
    assert added(file) == (b"", False)
    append(path, b"three\n")
    assert added(file) == (b"three\n", False)


def test_a_large_file_comes_in_parts_and_a_line_longer_than_a_part_in_one(path, monkeypatch):
    monkeypatch.setattr(followed_file, "_PART", 10)
    lines = b"a line\n" * 7 + b"x" * 55 + b"\n" + b"a line\n" * 3
    append(path, lines + b"half")
    file = FollowedFile(path)
    assert len(file.read().content) <= 10
    assert added(file) == (lines[7:], False)
