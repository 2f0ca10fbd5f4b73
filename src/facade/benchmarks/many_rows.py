"""What it costs to record a run with many rows, to end it, and to look at it afterwards."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from facade.core.types import Row
from facade.experiment.config import Experiment
from facade.runs.moments import gathered
from facade.runs.run_directory import RunDirectory
from facade.runtimes import local
from facade.runtimes.recorder import Quiet

NODES = 1_000
ROWS, FEWEST = 100_000, 50_000
"""One for each node and round. With fewer, FACADE would not come to the end of its survey."""


class _End(Quiet):
    """Notes how much the processor has worked when the last round is over, and when the run is summed up."""

    def __init__(self) -> None:
        self.last_round = self.summed_up = 0.0

    def round(self, done: int, rounds: int) -> None:
        self.last_round = time.process_time()

    def finish(self, summary: Row) -> None:
        self.summed_up = time.process_time()


def run(quick: bool, rows: int | None = None) -> dict[str, Any]:
    """EL and FACADE over 1,000 digits nodes; `rows`: how many are recorded, evaluations not counted."""
    rounds = (rows or (FEWEST if quick else ROWS)) // NODES
    return {"rows": {name: measured(name, NODES, rounds) for name in ("el", "facade")}}


def measured(algorithm: str, nodes: int, rounds: int) -> dict[str, Any]:
    """One run in a process of its own, on one thread, and the commands that look at it: seconds of processor time, and
    their ratios to that of the run."""
    with tempfile.TemporaryDirectory() as temporary:
        path, few, page = (f"{temporary}/{name}" for name in ("run", "few", "report.html"))
        code = f"from facade.benchmarks import many_rows; many_rows.print_run{(algorithm, nodes, rounds, path)!r}"
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        numbers: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
        local.run(_experiment("el", 8, 2), few)
        seconds = {
            "end": numbers.pop("end_seconds"),
            "show": _command("show", path),
            "show_few_rows": _command("show", few),
            "report": _command("report", path, "--out", page),
        }
        start = time.process_time()
        gathered(RunDirectory(Path(path)).rows, nodes)
        seconds["read_rows"] = time.process_time() - start
    ratios = {f"{name}_over_run": round(spent / numbers["run_seconds"], 4) for name, spent in seconds.items()}
    return numbers | {f"{name}_seconds": round(spent, 2) for name, spent in seconds.items()} | ratios


def print_run(algorithm: str, nodes: int, rounds: int, path: str) -> None:
    """What `measured` reports of the run itself, measured on this process."""
    end, start = _End(), time.process_time()
    local.run(_experiment(algorithm, nodes, rounds), path, progress=end)
    spent = time.process_time() - start
    laps = [json.loads(line) for line in (Path(path) / "timings.jsonl").read_text().splitlines()]
    recording = sum(lap["record"] for lap in laps) / sum(lap["seconds"] for lap in laps)
    numbers = {
        "rows": nodes * rounds,
        "megabytes": round((Path(path) / "rows.jsonl").stat().st_size / 1e6, 1),
        "run_seconds": round(spent, 1),
        "end_seconds": end.summed_up - end.last_round,
        "recording_share": round(recording, 4),
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3),
    }
    print(json.dumps(numbers))


def _experiment(algorithm: str, nodes: int, rounds: int) -> Experiment:
    """A small perceptron on digits, 4 images per class and node."""
    return Experiment.of(
        {
            "data": {"source": "digits", "clusters": f"{nodes - 2}:2", "partition": "sampled", "per_class": 4},
            "algorithm": {"name": algorithm},
            "training": {"rounds": rounds},
            "evaluation": {"every": 50},
            "runtime": {"threads": 1},
        }
    )


def _command(*arguments: str) -> float:
    """Seconds of processor time of a `facade` command."""

    def used() -> float:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return children.ru_utime + children.ru_stime

    before = used()
    command = [sys.executable, "-c", "from facade.cli import main; main()", *arguments]
    subprocess.run(command, capture_output=True, check=True)
    return used() - before
