"""`facade sweep`: a grid of settings times seeds, in one command that may be called again."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from facade.cli.console import err, out
from facade.cli.options import Address, ExperimentFile, Preset
from facade.cli.report import leave_report
from facade.errors import ExperimentError, FacadeError, StoppedError
from facade.runs.run_order import keep_order
from facade.runs.stop_signals import StopSignals

if TYPE_CHECKING:
    from facade.sweep.jobs import Job
    from facade.sweep.process_pool import EndedJob, OnEvent

    Compute = Callable[[Sequence[Job], OnEvent, StopSignals], Iterator[EndedJob]]


def sweep(
    experiment: ExperimentFile,
    out_dir: Annotated[Path, typer.Option("--out", help="Directory for the runs; call again to go on.")],
    grid: Annotated[
        list[str] | None, typer.Option(help="section.key=value,value,... Repeatable: all combinations.")
    ] = None,
    seeds: Annotated[str, typer.Option(help="Seeds, such as 1,2,3 or 1-3.", show_default="the file's")] = "",
    settings: Annotated[list[str] | None, typer.Option("--set", help="section.key=value for all. Repeatable.")] = None,
    preset: Preset = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1, help="Runs at a time; cores are divided among them.", show_default="1; on Ray, one per CPU"
        ),
    ] = None,
    select: Annotated[
        str | None, typer.Option(help="validation.NUMBER: choose the best point of every algorithm by it.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what there is to do and what it costs.")] = False,
    runtime: Annotated[str, typer.Option(help="local, or ray: whole runs are spread over a cluster.")] = "local",
    address: Address = None,
) -> None:
    """Run a grid. Finished runs are skipped, unfinished ones resumed, failed ones tried again."""
    from facade.sweep.jobs import Sweep, check_selection

    with _pool(runtime, address, jobs) as pool:
        planned = Sweep(
            experiment, out_dir, tuple(grid or ()), parse_seeds(seeds), (*pool.settings, *(settings or ())), preset
        ).jobs()
        if runtime == "local" and any(job.experiment.runtime.name == "ray" for job in planned):
            raise ExperimentError(
                "the experiment says runtime.name = 'ray'; add --runtime ray, which spreads whole runs over a cluster,"
                " or --set runtime.name=local"
            )
        number = check_selection(select, planned) if select else None
        todo = [job for job in planned if not job.finished]
        print_plan(planned, todo, pool.size)
        if dry_run:
            return
        keep_order(out_dir, list(dict.fromkeys(job.path.name for job in planned)))
        ends = _compute(planned, todo, pool.compute)
    _print_results(planned, out_dir, select, number)
    _check_complete(planned, ends)


class Pool(NamedTuple):
    """What computes the runs."""

    size: int
    """Runs at a time."""
    settings: tuple[str, ...]
    """What each run is told of its part of the machine."""
    compute: Compute


@contextlib.contextmanager
def _pool(runtime: str, address: str | None, jobs: int | None) -> Iterator[Pool]:
    """Processes on this machine, or a Ray cluster, for as long as the sweep takes."""
    if runtime == "ray":
        from facade.runtimes.ray import connection, sweep

        with connection.connected(address):
            size = jobs or connection.cluster_cpus()
            yield Pool(size, ("runtime.threads=1",), lambda todo, *how: sweep.compute_all(todo, size, *how))
        return
    if runtime != "local" or address is not None:
        options = f"--runtime {runtime}" + (f" --address {address}" if address else "")
        raise ExperimentError(f"{options}: expected --runtime local, or --runtime ray with or without an address")
    from facade.learning.machine import cores
    from facade.sweep.process_pool import compute_all

    size = jobs or 1
    threads = (f"runtime.threads={max(1, cores() // size)}",) if size > 1 else ()
    yield Pool(size, threads, lambda todo, *how: compute_all(todo, size, *how))


def _compute(planned: list[Job], todo: list[Job], compute: Compute) -> list[EndedJob]:
    """Compute what is to do, under one progress display, and how it ended. Runs that another process was computing are
    asked for again after all others: by then it may have finished them."""
    from facade.cli.progress import SweepProgress

    stop_signals = StopSignals()
    ends: dict[Path, EndedJob] = {}
    with SweepProgress(len(planned), len(planned) - len(todo)) as progress:
        for again in (False, True):
            now = [job for job in todo if ends[job.path].ended == "busy"] if again else todo
            for end in compute(now, progress.rounds_done, stop_signals) if now else ():
                progress.ended(end)
                ends[end.job.path] = end
            if len(ends) < len(todo) or stop_signals.received is not None:
                break
    if any(end.ended == "stopped" for end in ends.values()) or len(ends) < len(todo):
        finished = sum(job.finished for job in planned)
        received = stop_signals.received or signal.SIGTERM  # of which one worker may have heard alone
        sentence = f"stopped with {finished} of {len(planned)} runs finished; give the same command to go on"
        raise StoppedError(sentence, received)
    return list(ends.values())


def _check_complete(planned: list[Job], ends: Sequence[EndedJob]) -> None:
    """FacadeError, with names, where runs of the sweep are still missing."""
    missing = {kind: [end.job.path.name for end in ends if end.ended == kind] for kind in ("failed", "busy")}
    words = {
        "failed": "failed ({names}); the same command tries them again",
        "busy": "are being computed by another process ({names}); give the same command when it is done",
    }
    sentences = [
        f"{len(names)} of {len(planned)} runs {words[kind].format(names=', '.join(names))}"
        for kind, names in missing.items()
        if names
    ]
    if sentences:
        raise FacadeError("; ".join(sentences))


def compute_one_by_one(planned: list[Job], todo: list[Job]) -> None:
    """Compute what is to do of the planned runs, one after the other; what stops or fails ends it."""
    from facade.cli.progress import SweepProgress
    from facade.sweep.process_pool import compute_all

    stop_signals = StopSignals()
    with SweepProgress(len(planned), len(planned) - len(todo)) as progress:
        for end in compute_all(todo, 1, progress.rounds_done, stop_signals):
            progress.ended(end)
            if end.ended in ("failed", "busy"):
                raise FacadeError(f"{end.job.path.name} {end.ended}: {end.reason}")
    if stop_signals.received is not None:
        raise StoppedError("stopped; give the same command to go on", stop_signals.received)


def parse_seeds(text: str) -> tuple[int, ...]:
    """Seeds and ranges of seeds separated by commas, each seed once."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    return tuple(dict.fromkeys(seed for part in parts for seed in _range(part, text)))


def _range(part: str, text: str) -> range:
    """The seeds of 7 or of 5-8."""
    first, dash, last = (word.strip() for word in part.partition("-"))
    if not (first.isdecimal() and (not dash or last.isdecimal())):
        raise ExperimentError(f"--seeds {text}: expected whole numbers and ranges, such as 1,2,3 or 1,2,5-8")
    if dash and int(last) < int(first):
        raise ExperimentError(f"--seeds {text}: {part} has no seeds; give the lower one first, such as {last}-{first}")
    return range(int(first), int(last or first) + 1)


def print_plan(planned: list[Job], todo: list[Job], at_once: int) -> None:
    """Say what there is to do and, from timing a little of it, how long that will take."""
    begun = sum(1 for job in todo if job.done)
    counts = f"{len(planned) - len(todo)} finished, {begun} to continue, {len(todo) - begun} to start"
    err.print(f"{len(planned)} runs: {counts}.")
    if not todo:
        return
    from facade.sweep.estimate import expected

    price = expected(todo)
    duration = _duration(price.seconds / min(at_once, len(todo)))
    err.print(
        f"Expected: {duration} with {at_once} at a time, from timing one round"
        f" and one evaluation of {price.kinds} kind{'' if price.kinds == 1 else 's'} of run just now"
        + (f"; {price.untimed} could not be timed:" if price.untimed else "."),
        soft_wrap=True,
    )
    for reason in price.reasons:
        err.print(f"  {reason}", soft_wrap=True)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"about {max(1, round(seconds))} s"
    if seconds < 5400:
        return f"about {round(seconds / 60)} min"
    return f"about {seconds / 3600:.1f} h"


def _print_results(planned: list[Job], out_dir: Path, select: str | None, number: str | None) -> None:
    """The table of the finished runs, on the screen and as table.csv; the choice, if one is wanted."""
    from facade.analysis.table import tabulate, to_csv
    from facade.cli.show import print_table
    from facade.files import store
    from facade.runs.history import load_all
    from facade.sweep.jobs import candidates, write_selection

    finished = [job.path for job in planned if job.finished]
    if not finished:
        return
    runs = load_all(finished)  # which refuses runs that were computed on other data
    table = tabulate(runs)
    print_table(table)
    store.replace(out_dir / "table.csv", to_csv(table).encode())
    written = [out_dir / "table.csv"]
    if select is not None and number is not None:
        tried = candidates(planned, number)
        written += write_selection(tried, select, out_dir)
        for candidate in tried:
            mean = "none" if candidate.mean is None else f"{candidate.mean:.4f}"
            mark = " <- chosen" if candidate.chosen else ""
            name = candidate.experiment.algorithm["name"]
            out.print(
                f"{name}  {' '.join(candidate.point)}  {select} {mean}{mark}",
                soft_wrap=True,
            )
    out.print(f"\nWritten: {', '.join(map(str, written))}", soft_wrap=True)
    leave_report(out, runs, out_dir)
