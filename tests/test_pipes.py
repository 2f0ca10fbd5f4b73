"""A reader that has seen enough, such as `head`, ends no command and changes no exit code."""

import os
import subprocess
import sys

import pytest

from experiments import digits
from facade.cli.console import out
from handmade import write_run

COMMAND = [sys.executable, "-c", "from facade.cli import main; main()"]


@pytest.fixture
def left():
    """A pipe whose reader has gone."""
    reads, writes = os.pipe()
    os.close(reads)
    yield writes
    os.close(writes)


@pytest.fixture
def finished(tmp_path):
    return write_run(tmp_path / "run", [(1, [0, 0, 0, 1])] * 2, {}, [9, 9, 9, 8])


def ended(arguments, **streams):
    """The exit code of a command, and what it said where somebody listens."""
    done = subprocess.run([*COMMAND, *map(str, arguments)], check=False, text=True, **streams)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("clause", "code"), [("max_gap = 0.2", 0), ("max_gap = 0.01", 1), ("min_gain_over_local = 0.1", 2)]
)
def test_the_verdict_of_a_check_survives_a_lost_reader(clause, code, finished, left, tmp_path):
    (tmp_path / "fair.toml").write_text(clause)
    check = ["check", finished, "--contract", tmp_path / "fair.toml"]
    assert ended(check, stdout=left, stderr=subprocess.PIPE) == (code, "")


@pytest.mark.parametrize("form", ["--json", "--csv"])
def test_what_is_for_programs_may_lose_its_reader_too(form, finished, left):
    assert ended(["show", finished, form], stdout=left, stderr=subprocess.PIPE) == (0, "")


def test_a_run_goes_on_when_nobody_reads_its_progress(left, tmp_path):
    (tmp_path / "tiny.toml").write_text(digits(clusters="3:1", degree=2, rounds=6, steps=1, every=2).toml())
    run = ["run", tmp_path / "tiny.toml", "--out", tmp_path / "run", "--json"]
    assert ended(run, stdout=left, stderr=left)[0] == 0
    assert (tmp_path / "run" / "result.json").exists()


def test_a_division_that_looks_like_an_emoji_is_printed_as_it_is(capsys):
    out.print("20:100:2")
    assert capsys.readouterr().out == "20:100:2\n"
