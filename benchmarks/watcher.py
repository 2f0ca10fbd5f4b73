"""CPU seconds of a watcher beside those of what it watches, over a minute: with nobody at its page, and with somebody
who follows it. `python benchmarks/watcher.py [SECONDS]`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

FACADE = [sys.executable, "-m", "facade"]
EXAMPLES = Path(__file__).parents[1] / "examples"
BIG = """
[data]
source = "synthetic"
clusters = "900:100"
skew = "labels"
groups = [[0, 1], [2, 3]]
[training]
rounds = 1000000
"""
_SETTLED = 3.0
"""Seconds in which watchers start, which is counted apart."""
_TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds(root: int) -> float:
    """Of a process and all below it, those that have ended included."""
    children: dict[int, list[int]] = {}
    spent: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append(int(entry.name))
            spent[int(entry.name)] = sum(map(int, fields[11:15])) / _TICK
    found, total = [root], 0.0
    while found:
        process = found.pop()
        total += spent.get(process, 0.0)
        found += children.get(process, [])
    return total


def _has_rows(place: Path) -> bool:
    """Whether a run, or a site below it, has begun."""
    return any(rows.stat().st_size for rows in place.rglob("rows.jsonl"))


def follow(address: str, heard: list[int]) -> None:
    """Read the stream as a browser does."""
    with urllib.request.urlopen(f"{address}events") as stream:
        while part := stream.read1(1 << 16):
            heard[0] += len(part)


def measured(name: str, command: list[str], place: Path, seconds: float) -> str:
    """One line of the table."""
    run = subprocess.Popen([*FACADE, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not _has_rows(place):
        time.sleep(0.1)
    watchers, heard = [], [0]
    for connected in (False, True):
        asked = [*FACADE, "watch", str(place), "--listen", "127.0.0.1:0"]
        watcher = subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        watchers.append(watcher)
        assert watcher.stdout is not None
        address = watcher.stdout.readline().split()[-1]
        if connected:
            threading.Thread(target=follow, args=(address, heard), daemon=True).start()
    time.sleep(_SETTLED)
    before = [cpu_seconds(process.pid) for process in (run, *watchers)]
    time.sleep(seconds)
    after = [cpu_seconds(process.pid) for process in (run, *watchers)]
    spent, alone, followed = (late - early for early, late in zip(before, after, strict=True))
    for process in (run, *watchers):
        process.terminate()
    for process in (run, *watchers):
        process.wait()
    shares = " | ".join(f"{each:.2f} s, {100 * each / spent:.2f} %" for each in (alone, followed))
    return f"| {name} | {spent:.0f} s | {before[1]:.2f} s | {shares} | {heard[0] / 1e6:.1f} MB |"


def main() -> None:
    """Print a table."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    endless = ["--set", "training.rounds=1000000"]
    with tempfile.TemporaryDirectory() as base:
        (Path(base) / "big.toml").write_text(BIG)
        for name, command, file in (
            ("ward, 32 nodes", "run", EXAMPLES / "ward.toml"),
            ("1,000 nodes", "run", Path(base) / "big.toml"),
            ("four sites", "network", EXAMPLES / "hospitals.toml"),
        ):
            out = Path(base) / "watched" / name.replace(" ", "-").replace(",", "")
            out.parent.mkdir(exist_ok=True)
            first = ["network", "up", "--local", "4"] if command == "network" else ["run"]
            whole = [*first, str(file), *endless, "--out", str(out)]
            print(measured(name, whole, out, seconds), flush=True)


if __name__ == "__main__":
    main()
