import errno
import warnings
from pathlib import Path

import pytest

from facade.errors import StorageError
from facade.peers.node.journal import Journal, lines


def test_of_a_flood_the_first_hundred_and_every_power_of_two_are_written(tmp_path):
    journal = Journal(tmp_path / "log.jsonl")
    for _ in range(1000):
        journal.refused("b", "busy")
    journal.refused("b", "stranger")
    journal.close()
    written = [(event["reason"], event["count"]) for event in lines(tmp_path / "log.jsonl")]
    assert written == [("busy", count) for count in [*range(1, 101), 128, 256, 512]] + [("stranger", 1)]
    assert journal.refusals == {"busy": 1000, "stranger": 1}


def test_a_half_line_of_a_killed_process_is_ended_and_left_out(tmp_path):
    path = tmp_path / "log.jsonl"
    for event in ("whole", "next"):
        journal = Journal(path)
        journal.write(event, round=3)
        journal.close()
        if event == "whole":
            path.write_bytes(path.read_bytes() + b'{"event":"ha')
    with pytest.warns(UserWarning, match=r"log.jsonl is cut off or damaged: line 2 is not used"):
        assert [event["event"] for event in lines(path)] == ["whole", "next"]


def test_a_changed_bit_anywhere_in_a_log_is_named_and_its_line_not_used(tmp_path):
    journal = Journal(tmp_path / "log.jsonl")
    for round in range(3):
        journal.write("heard", round=round)
    journal.close()
    whole, events = (tmp_path / "log.jsonl").read_bytes(), lines(tmp_path / "log.jsonl")
    for place in range(len(whole)):
        (tmp_path / "log.jsonl").write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            read = [{key: event.get(key) for key in events[0]} for event in lines(tmp_path / "log.jsonl")]
        assert caught or read == events, f"byte {place}"
        assert all(event in events for event in read), f"byte {place}"


class NearlyFull:
    """A file on a disk that takes a few bytes of a line at a time, or for a moment none at all."""

    def __init__(self, file, takes):
        self.file, self.takes, self.closed = file, takes, False

    def write(self, content):
        takes = self.takes.pop(0) if self.takes else len(content)
        if not takes:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self.file.write(content[:takes])


def test_lines_that_a_full_disk_does_not_take_are_written_later_each_in_its_place(tmp_path):
    journal = Journal(tmp_path / "log.jsonl")
    file, journal._file = journal._file, NearlyFull(journal._file, [5, 7])
    journal.write("in parts")
    journal._file.takes = [9, 0]
    journal.write("half")
    journal._file.takes = [0]
    journal.write("none of it")
    assert [event["event"] for event in lines(tmp_path / "log.jsonl")] == ["in parts"]
    journal.write("after it")
    file.close()
    assert [event["event"] for event in lines(tmp_path / "log.jsonl")] == ["in parts", "half", "none of it", "after it"]


def test_who_needs_the_log_on_a_full_disk_is_told(tmp_path):
    journal = Journal(tmp_path / "log.jsonl")
    with Path("/dev/full").open("wb", buffering=0) as full:
        journal._file.close()
        journal._file = full
        journal.write("committed")
        with pytest.raises(StorageError, match=r"log.jsonl could not be written: No space left on device"):
            journal.sync()
        journal.close()
    with pytest.raises(StorageError, match=r"could not be written: File exists"):
        Journal(tmp_path / "log.jsonl" / "log.jsonl")


def test_a_line_that_lost_its_checksum_is_named_and_not_taken_for_one_of_an_older_version(tmp_path):
    path = tmp_path / "log.jsonl"
    journal = Journal(path)
    journal.write("first")
    journal.write("second")
    journal.close()
    path.write_bytes(path.read_bytes().replace(b'"crc32"', b'"crc36"', 1))
    with pytest.warns(UserWarning, match=r"line 1 is not used"):
        assert [event["event"] for event in lines(path)] == ["second"]
    path.write_bytes(path.read_bytes().replace(b'"crc32"', b'"crc36"'))
    assert [event["event"] for event in lines(path)] == ["first", "second"]
