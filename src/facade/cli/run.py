"""`facade run`: one experiment."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from facade.cli.console import Json, err, prose
from facade.cli.directories import run_directory
from facade.cli.display import print_results, write_summaries
from facade.cli.options import Address, ExperimentFile, Preset, Settings

if TYPE_CHECKING:
    from facade.experiment.config import Experiment
    from facade.runs.result import Result


def run(
    experiment: ExperimentFile,
    settings: Settings = None,
    preset: Preset = None,
    out_dir: Annotated[
        Path | None, typer.Option("--out", help="Directory for the run; new or empty.", show_default="below runs/")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run that is there; start it if there is none.")
    ] = False,
    track: Annotated[
        list[str] | None, typer.Option(help="Also write to tensorboard, mlflow or wandb. Repeatable.")
    ] = None,
    runtime: Annotated[
        str | None, typer.Option(help="Where to compute: local or ray.", show_default="what the file says")
    ] = None,
    address: Address = None,
    shards: Annotated[
        int | None, typer.Option(min=1, help="Parts of the nodes that are computed apart.", show_default="automatic")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show a page beside it that follows the run.")] = False,
    as_json: Json = False,
) -> None:
    """Run one experiment."""
    from facade.experiment.config import Experiment
    from facade.runs.run_directory import RunDirectory

    given = {"runtime.name": runtime, "runtime.shards": shards}
    runtime_settings = [f"{key}={value}" for key, value in given.items() if value is not None]
    described = Experiment.load(experiment, [*(settings or ()), *runtime_settings], preset)
    directory = out_dir or run_directory(described, resume)
    finished = resume and RunDirectory(directory).finished
    with _page(directory) if watch and not finished else nullcontext():
        results = {described.algorithm["name"]: _compute(described, directory, resume, track or [], address)}
    console = prose(as_json)
    print_results(console, results)
    ending = f"Nothing was computed: this run was finished already, in {directory}"
    console.print(f"\n{ending if finished else f'Written to {directory}'}", soft_wrap=True)
    if as_json:
        write_summaries(results, directory)


def _page(directory: Path) -> AbstractContextManager[None]:
    """The page beside the run; its address is printed."""
    from facade.watch.beside_run import page_beside

    return page_beside(directory, lambda sentence: err.print(sentence, soft_wrap=True))


def _compute(experiment: Experiment, directory: Path, resume: bool, track: list[str], address: str | None) -> Result:
    from facade.cli.progress import RunProgress
    from facade.runtimes.run import run as run_there
    from facade.trackers import tracker
    from facade.trackers.base import Several

    trackers = [tracker(name, directory) for name in track]
    with RunProgress(err) as progress:
        watchers = Several([progress, *trackers])
        return run_there(experiment, directory, resume=resume, progress=watchers, address=address)
