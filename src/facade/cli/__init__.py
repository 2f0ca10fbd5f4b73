"""The command line: parse, call, print. Torch is imported inside the commands, so that `--help`
answers at once."""

from __future__ import annotations

import itertools
import logging
import sys
import sysconfig
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

import facade
from facade.cli import bench as benching
from facade.cli import check as checking
from facade.cli import data, network, node
from facade.cli import export as exporting
from facade.cli import paper as papering
from facade.cli import report as reporting
from facade.cli import show as showing
from facade.cli import sweep as sweeping
from facade.cli.console import Json, err, out, prose, write_json
from facade.cli.flags import with_flags
from facade.errors import FacadeError, StoppedError

if TYPE_CHECKING:
    from rich.console import Console

    from facade.experiment.config import Experiment
    from facade.runs.result import Result

app = typer.Typer(
    name="facade",
    help="Fair decentralized learning: train together, leave no site behind.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@dataclass
class Asked:
    """What was asked of every command."""

    debug: bool = False


def main() -> None:
    """Run the command line; every refusal is one sentence and an exit code."""
    warnings.showwarning = _show_warning
    logging.basicConfig(format="%(message)s")  # to stderr
    logging.getLogger("facade").setLevel(logging.INFO)
    asked = Asked()
    try:
        app(standalone_mode=True, obj=asked)
    except FacadeError as error:
        if asked.debug:
            traceback.print_exc()
        sentence = str(error) if isinstance(error, StoppedError) else f"error: {error}"
        err.print(_with_flags(sentence), style="red", soft_wrap=True)
        sys.exit(error.exit_code)
    except Exception as error:  # of code of the user's own, or a mistake of ours
        if asked.debug:
            traceback.print_exc()
        said = f"error: {type(error).__name__}: {error} ({_where(error)}); `facade --debug ...` shows the way there"
        err.print(said, style="red", soft_wrap=True)
        sys.exit(1)


def _with_flags(sentence: str) -> str:
    """What the library says, with options of the given command in place of arguments."""
    return with_flags(sentence, typer.main.get_command(app), sys.argv[1:])


def _where(error: Exception) -> str:
    """The last line of the user's own code that an error passed, or the one that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = (str(Path(__file__).parents[1]), sysconfig.get_path("purelib"), sysconfig.get_path("stdlib"))
    own = [frame for frame in frames if not frame.filename.startswith((*ours, "<"))]
    last = (own or list(frames))[-1]
    return f"{last.filename}, line {last.lineno}, in {last.name}"


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    err.print(_with_flags(f"warning: {message}"), style="yellow", soft_wrap=True)


def _version(wanted: bool) -> None:
    if wanted:
        out.print(f"facade {facade.__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error was raised.")] = False,
) -> None:
    """Options of every command."""
    context.ensure_object(Asked).debug = debug
    # Names such as my_algorithm:Mine are looked for where the user is; last, so that no file there stands in for a
    # library.
    sys.path.append("")


@app.command()
def demo(
    seed: Annotated[int, typer.Option(min=0, help="Another seed: another split, other weights.")] = 1,
    out_dir: Annotated[
        Path | None, typer.Option("--out", help="Directory for the runs; new or empty.", show_default="below runs/")
    ] = None,
    as_json: Json = False,
) -> None:
    """Six algorithms on real digits: who serves the two nodes that are upside down?"""
    from facade.errors import RunDirectoryError
    from facade.experiment import demo as demonstration

    base = out_dir or fresh_directory(f"demo-seed{seed}")
    if base.exists() and (not base.is_dir() or any(base.iterdir())):
        raise RunDirectoryError(f"--out {base} is not empty; give a directory that is new or empty")
    experiments = {name: demonstration.experiment(name, seed) for name in demonstration.ALGORITHMS}
    sizes = experiments["facade"].data.sizes
    console = prose(as_json)
    console.print(
        f"32 nodes hold {sizes[0]} parts of upright and {sizes[1]} of upside-down digits (1,280 real images;"
        " nobody tells the nodes who is who).\nEach algorithm trains on the same split and seed, 200 rounds.",
    )
    results = _run_all(experiments, base)
    print_results(console, results)
    _print_demo_verdict(console, results, base)
    _leave_demo_report(console, base)
    if as_json:
        print_json(results, base)


@app.command()
def run(
    experiment: Annotated[Path, typer.Argument(help="The experiment, a TOML file.")],
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="section.key=value, over the file. Repeatable.")
    ] = None,
    preset: Annotated[str | None, typer.Option(help="A named set of settings: artefact.")] = None,
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
    address: Annotated[
        str | None, typer.Option(help="Head of a running Ray cluster, host:port.", show_default="one of its own")
    ] = None,
    shards: Annotated[
        int | None, typer.Option(min=1, help="Parts of the nodes that are computed apart.", show_default="automatic")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run one experiment."""
    from facade.experiment.config import Experiment
    from facade.runs.run_directory import RunDirectory

    given = {"runtime.name": runtime, "runtime.shards": shards}
    places = [f"{key}={value}" for key, value in given.items() if value is not None]
    described = Experiment.load(experiment, [*(settings or ()), *places], preset)
    name = described.algorithm["name"]
    directory = out_dir or _directory(described, resume)
    finished = resume and RunDirectory(directory).finished
    results = {name: _run_one(described, directory, resume, track or [], address)}
    console = prose(as_json)
    print_results(console, results)
    ending = f"Nothing was computed: this run was finished already, in {directory}"
    console.print(f"\n{ending if finished else f'Written to {directory}'}", soft_wrap=True)
    if as_json:
        print_json(results, directory)


@app.command("list")
def list_(
    what: Annotated[
        str | None,
        typer.Argument(help="algorithms, datasets, skews, partitions, models, topologies, metrics or settings."),
    ] = None,
) -> None:
    """What there is: names, what they do, fields and their defaults."""
    from facade.cli import listing

    listing.show(out, what)


def _numbered(name: str) -> Iterator[Path]:
    """runs/NAME, runs/NAME-2, runs/NAME-3, ..."""
    yield Path("runs") / name
    yield from (Path("runs") / f"{name}-{count}" for count in itertools.count(2))


def fresh_directory(name: str) -> Path:
    """runs/NAME, or the first of runs/NAME-2, -3, ... that does not exist yet."""
    return next(path for path in _numbered(name) if not path.exists())


def _directory(experiment: Experiment, resume: bool) -> Path:
    """Where a run goes if nobody says so: below runs/; to resume, the last one of this experiment."""
    from facade.core.names import short
    from facade.experiment.decisive_settings import decisive_settings
    from facade.runs.run_directory import RunDirectory

    name = f"{experiment.name}-{short(experiment.algorithm['name'])}-seed{experiment.seed}"
    wanted = decisive_settings(experiment.model_dump())
    there = [RunDirectory(path) for path in itertools.takewhile(Path.exists, _numbered(name))] if resume else []
    same = [run.path for run in there if run.started and decisive_settings(run.experiment()) == wanted]
    return same[-1] if same else fresh_directory(name)


def _run_one(experiment: Experiment, directory: Path, resume: bool, track: list[str], address: str | None) -> Result:
    from facade.cli.progress import RunProgress
    from facade.runtimes.run import run as run_there
    from facade.trackers import tracker
    from facade.trackers.base import Several

    trackers = [tracker(name, directory) for name in track]
    with RunProgress(err, experiment.data.sizes) as progress:
        watchers = Several([progress, *trackers])
        return run_there(experiment, directory, resume=resume, progress=watchers, address=address)


def _run_all(experiments: dict[str, Experiment], base: Path) -> dict[str, Result]:
    from facade.cli.progress import RunProgress
    from facade.runtimes.local import run as run_locally

    sizes = next(iter(experiments.values())).data.sizes
    with RunProgress(err, sizes) as progress:
        return {name: run_locally(e, base / name, progress=progress) for name, e in experiments.items()}


def print_results(console: Console, results: dict[str, Result]) -> None:
    """The table of runs, and of those with heads who chose which."""
    from facade.cli.display import head_strip, health, print_summaries, settlement

    first = next(iter(results.values()))
    sizes = first.experiment.data.sizes
    console.print()
    print_summaries(console, {name: r.summary for name, r in results.items()}, sizes)
    cluster = [c for c, size in enumerate(sizes) for _ in range(size)]
    for name, result in results.items():
        said = settlement(result.summary, cluster, sizes)
        if said:
            console.print(f"{name}: the head each node chose, clusters side by side. {said}")
            console.print(head_strip(result.rows, sizes, console.width), end="")
            if warned := health(result.summary):
                console.print(warned)


def _print_demo_verdict(console: Console, results: dict[str, Result], base: Path) -> None:
    gap = {name: r.summary["clusters"][0] - r.summary["clusters"][1] for name, r in results.items()}
    alone = results["local"].summary["clusters"][1]
    together = {name: results[name].summary["clusters"][1] for name in ("el", "facade")}
    verdict = (
        f"Epidemic Learning leaves the minority {100 * gap['el']:.0f} points behind the majority"
        f" ({100 * together['el']:.1f} %; training alone gives it {100 * alone:.1f} %)."
    )
    if results["facade"].summary["separated"]:
        verdict += (
            f" FACADE leaves it {100 * gap['facade']:.0f} behind ({100 * together['facade']:.1f} %),"
            " at the same traffic."
        )
    else:
        verdict += (
            " With this seed FACADE did not separate the clusters, and serves the minority no better; try another seed."
        )
    console.print(f"\n{verdict}")
    file = quote(f"{base}/facade/experiment.toml")
    console.print(
        f"\nWritten to {base}. Next:\n"
        f"  facade run {file} --set data.clusters=20:10:2 --set algorithm.heads=3\n"
        f"  facade run {file} --set network.loss=0.2\n"
        "  facade list algorithms",
        soft_wrap=True,
    )


def _leave_demo_report(console: Console, base: Path) -> None:
    from facade.runs.history import load_all

    reporting.leave_report(console, load_all([base]), base)


def print_json(results: dict[str, Result], base: Path) -> None:
    """All summaries in one line."""
    summaries = {name: result.summary for name, result in results.items()}
    write_json({"run_dir": str(base), "algorithms": summaries})


app.command()(sweeping.sweep)
app.command()(showing.show)
app.command()(checking.check)
app.command()(exporting.export)
app.command("choose")(exporting.recommend)
app.command()(benching.bench)
app.command()(reporting.report)
app.command()(papering.paper)
app.add_typer(data.app, name="data")
app.add_typer(network.app, name="network")
app.add_typer(node.app, name="node")
