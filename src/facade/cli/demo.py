"""`facade demo`: six algorithms on real digits, and what to look at next."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from facade.cli.console import Json, err, prose
from facade.cli.directories import fresh_directory
from facade.cli.display import print_results, write_summaries
from facade.cli.report import leave_report

if TYPE_CHECKING:
    from collections.abc import Sequence

    from facade.experiment.config import Experiment
    from facade.runs.history import History
    from facade.runs.result import Result


def demo(
    seed: Annotated[int, typer.Option(min=0, help="Another seed: another split, other weights.")] = 1,
    out_dir: Annotated[
        Path | None, typer.Option("--out", help="Directory for the runs; new or empty.", show_default="below runs/")
    ] = None,
    as_json: Json = False,
) -> None:
    """Six algorithms on real digits: who serves the two nodes that are upside down?"""
    from facade.errors import RunDirectoryError
    from facade.experiment.demo import ALGORITHMS, experiment
    from facade.runs.history import load_all

    base = out_dir or fresh_directory(f"demo-seed{seed}")
    if base.exists() and (not base.is_dir() or any(base.iterdir())):
        raise RunDirectoryError(f"--out {base} is not empty; give a directory that is new or empty")
    experiments = {name: experiment(name, seed) for name in ALGORITHMS}
    sizes = experiments["facade"].data.sizes
    console = prose(as_json)
    console.print(
        f"32 nodes hold {sizes[0]} parts of upright and {sizes[1]} of upside-down digits (1,280 real images;"
        " nobody tells the nodes who is who).\nEach algorithm trains on the same split and seed, 200 rounds.",
    )
    results = _compute(experiments, base)
    runs = load_all([base])
    print_results(console, results, _leading(runs))
    console.print(f"\n{_verdict(results)}")
    console.print(f"\nWritten to {base}. Next:\n{_next_commands(base)}", soft_wrap=True)
    leave_report(console, runs, base)
    if as_json:
        write_summaries(results, base)


def _compute(experiments: dict[str, Experiment], base: Path) -> dict[str, Result]:
    from facade.cli.progress import RunProgress
    from facade.runs.run_order import keep_order
    from facade.runtimes.local import run as run_locally

    keep_order(base, list(experiments))
    with RunProgress(err) as progress:
        return {name: run_locally(e, base / name, progress=progress) for name, e in experiments.items()}


def _leading(runs: Sequence[History]) -> dict[str, set[str]]:
    """By number, the algorithms that are the best, or cannot be told from it."""
    from facade.analysis.table import tabulate

    table = tabulate(runs)
    return {number: {table.lines[i].label["algorithm"] for i in lines} for number, lines in table.leading.items()}


def _verdict(results: dict[str, Result]) -> str:
    """In words, how EL and FACADE serve the minority."""
    gap = {name: r.summary["clusters"][0] - r.summary["clusters"][1] for name, r in results.items()}
    minority = {name: r.summary["clusters"][1] for name, r in results.items()}
    verdict = (
        f"Epidemic Learning leaves the minority {100 * gap['el']:.0f} points behind the majority"
        f" ({100 * minority['el']:.1f} %; training alone gives it {100 * minority['local']:.1f} %)."
    )
    if not results["facade"].summary["separated"]:
        return verdict + (
            " With this seed FACADE did not separate the clusters, and serves the minority no better; try another seed."
        )
    return verdict + (
        f" FACADE leaves it {100 * gap['facade']:.0f} behind ({100 * minority['facade']:.1f} %), at the same traffic."
    )


def _next_commands(base: Path) -> str:
    file = quote(f"{base}/facade/experiment.toml")
    return (
        f"  facade run {file} --set data.clusters=20:10:2 --set algorithm.heads=3\n"
        f"  facade run {file} --set network.loss=0.2\n"
        "  facade list algorithms"
    )
