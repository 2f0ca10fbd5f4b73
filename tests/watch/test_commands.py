"""`facade watch` and `facade run --watch` as a person meets them."""

import io
import json
import re
import signal
import subprocess
import sys
import urllib.request

import pytest
from rich.console import Console

from experiments import digits, written
from facade.watch import beside_run, terminal
from facade.watch.places import Places
from facade.watch.terminal import sparkline, watch_in_terminal
from facade.watch.watching import Watching
from handmade import write_run
from surroundings import loaded_by

FACADE = [sys.executable, "-m", "facade"]


@pytest.fixture
def finished(tmp_path):
    chosen = [(1000, [0, 0, 0, 1])] * 4
    return write_run(tmp_path / "runs" / "one", chosen, {2: [9, 9, 9, 5], 4: [9, 9, 9, 7]}, [9, 9, 9, 8])


def test_the_page_is_there_until_ctrl_c(finished):
    command = [*FACADE, "watch", finished, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watcher:
        address = re.fullmatch(r"Watch at (http://127\.0\.0\.1:\d+/)\n", watcher.stdout.readline())[1]
        with urllib.request.urlopen(address) as answer:
            assert b"Facade: watching" in answer.read()
        watcher.send_signal(signal.SIGINT)
        assert watcher.wait() == 0
        assert watcher.stderr.read().count("\n") == 1


def test_where_the_output_is_no_terminal_the_table_is_printed_once(command, finished):
    ended = command("watch", "--terminal", finished)
    assert (ended.code, ended.err) == (0, "")
    assert "4/4" in ended.out
    assert "result" in ended.out, "it is not written yet"
    assert "80.0 %" in ended.out, "the minority after the final exchange"
    assert re.search(r"node 0 to node 2 0000\n +node 3 1111\n", ended.out)
    assert "\x1b" not in ended.out


def test_a_terminal_is_redrawn_until_ctrl_c(finished, monkeypatch):
    looks = []

    def interrupted(seconds):
        looks.append(seconds)
        if len(looks) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(terminal.time, "sleep", interrupted)
    screen = Console(force_terminal=True, width=120, record=True, file=io.StringIO())
    watch_in_terminal(Watching(Places([finished])), screen)
    assert "writes its result" in screen.export_text()
    assert len(looks) == 3


def test_small_pictures_of_numbers():
    assert sparkline([]) == ""
    assert sparkline([None, 1.0]) == "▁"
    assert sparkline([0.0, 1.0]) == "▁█"
    assert len(sparkline([float(i) for i in range(1000)])) == 24
    assert [terminal.duration(seconds) for seconds in (None, 5, 300, 9000, 200_000)] == [
        "",
        "5 s",
        "5 min",
        "2 h",
        "2 d",
    ]


def test_a_run_with_a_page_beside_it_ends_as_without(tmp_path):
    file = written(digits(clusters="3:1", degree=2, rounds=4, steps=1, every=2), tmp_path / "tiny.toml")
    ends = {}
    for name, more in (("without", []), ("with", ["--watch"])):
        asked = [*FACADE, "run", file, "--out", tmp_path / name, *more]
        ends[name] = subprocess.run(asked, capture_output=True, text=True, check=False)
        assert ends[name].returncode == 0
    assert re.search(r"^Watch this run at http://127\.0\.0\.1:\d+/$", ends["with"].stderr, re.MULTILINE)
    rows, results = zip(
        *((tmp_path / name / "rows.jsonl", json.loads((tmp_path / name / "result.json").read_text())) for name in ends),
        strict=True,
    )
    assert rows[0].read_bytes() == rows[1].read_bytes()
    assert results[0]["state_sha256"] == results[1]["state_sha256"]
    address = re.search(r"http://\S+", ends["with"].stderr)[0]
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(address)


def test_a_page_that_cannot_start_costs_a_warning_and_no_run(tmp_path, monkeypatch):
    monkeypatch.setattr(beside_run.sys, "executable", str(tmp_path / "nothing"))
    said = []
    with beside_run.page_beside(tmp_path, said.append):
        assert "there is no page to watch this run" in said[0]
    monkeypatch.setattr(beside_run.sys, "executable", "/bin/false")
    with beside_run.page_beside(tmp_path, said.append):
        assert "did not start" in said[1]


def test_a_page_outlives_no_run_that_was_killed(tmp_path):
    program = (
        "import sys, time\nfrom pathlib import Path\nfrom facade.watch.beside_run import page_beside\n"
        "with page_beside(Path(sys.argv[1]), lambda said: print(said, flush=True)):\n    sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    address = process.stdout.readline().split()[-1]
    urllib.request.urlopen(address).close()
    process.kill()
    assert process.stdout.read() == "", "the page's process has ended, and with it the last writer of the pipe"
    process.wait()
    process.stdin.close()
    process.stdout.close()


def test_watching_loads_no_heavy_library():
    heavy = ("torch", "pydantic", "grpc", "cryptography", "sklearn", "altair", "facade.watch.watching")
    program = "from facade.watch import beside_run, places, serving, terminal, watching"
    assert loaded_by(program, *heavy) == ["facade.watch.watching"]
