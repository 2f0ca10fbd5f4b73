"""The command line: parse, call, print. Torch is imported inside the commands, so that `--help`
answers at once."""

from __future__ import annotations

import json
import sys
import traceback
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from facade.errors import FacadeError

if TYPE_CHECKING:
    from facade.config import Experiment
    from facade.result import Result

app = typer.Typer(
    name="facade",
    help="Fair decentralized learning: train together, leave no site behind.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
out = Console()
err = Console(stderr=True)

Out = Annotated[
    Path | None, typer.Option(help="Directory for the results; it must be new or empty.", show_default="below runs/")
]
Json = Annotated[bool, typer.Option("--json", help="End with one line of JSON on standard output.")]


def main() -> None:
    """Run the command line; every refusal is one sentence and an exit code."""
    warnings.showwarning = _show_warning
    try:
        app(standalone_mode=True)
    except FacadeError as error:
        if "--debug" in sys.argv:
            traceback.print_exc()
        err.print(f"error: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
        sys.exit(error.exit_code)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    err.print(f"warning: {message}", style="yellow", highlight=False, markup=False, soft_wrap=True)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        out.print(f"facade {version('facade-dl')}", highlight=False)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error was raised.")] = False,
) -> None:
    """Options of every command."""
    # Names such as my_algorithm:Mine are looked for where the user is.
    sys.path.insert(0, "")


@app.command()
def demo(
    seed: Annotated[int, typer.Option(min=0, help="Another seed: another split, other weights.")] = 1,
    out_dir: Annotated[
        Path | None, typer.Option("--out", help="Directory for the runs; new or empty.", show_default="below runs/")
    ] = None,
    as_json: Json = False,
) -> None:
    """Six algorithms on real digits: who serves the two nodes that are upside down?"""
    from facade import demo as demonstration
    from facade.errors import RunDirectoryError

    base = out_dir or fresh_directory(f"demo-seed{seed}")
    if base.exists() and (not base.is_dir() or any(base.iterdir())):
        raise RunDirectoryError(f"--out {base} is not empty; give a directory that is new or empty")
    experiments = {name: demonstration.experiment(name, seed) for name in demonstration.ALGORITHMS}
    sizes = experiments["facade"].data.sizes
    out.print(
        f"32 nodes hold {sizes[0]} parts of upright and {sizes[1]} of upside-down digits (1,437 real images;"
        " nobody tells the nodes who is who).\nEach algorithm trains on the same split and seed, 200 rounds.",
        highlight=False,
    )
    results = _run_all(experiments, base)
    _print_results(results)
    _print_demo_verdict(results, base)
    if as_json:
        _print_json(results, base)


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
    as_json: Json = False,
) -> None:
    """Run one experiment."""
    from facade.config import Experiment

    described = Experiment.load(experiment, settings or (), preset)
    name = described.algorithm["name"]
    label = name.rpartition(":")[2]
    directory = out_dir or fresh_directory(f"{described.name}-{label}-seed{described.seed}")
    results = _run_all({name: described}, directory, single=True)
    _print_results(results)
    out.print(f"\nWritten to {directory}", highlight=False)
    if as_json:
        _print_json(results, directory)


@app.command("list")
def list_(
    what: Annotated[
        str | None, typer.Argument(help="algorithms, datasets, skews, models, topologies or metrics.")
    ] = None,
) -> None:
    """What there is: names, what they do, fields and their defaults."""
    from facade.cli import listing

    listing.show(out, what)


def fresh_directory(name: str) -> Path:
    """runs/NAME, or the first of runs/NAME-2, -3, ... that does not exist yet."""
    path, count = Path("runs") / name, 1
    while path.exists():
        count += 1
        path = Path("runs") / f"{name}-{count}"
    return path


def _run_all(experiments: dict[str, Experiment], base: Path, single: bool = False) -> dict[str, Result]:
    from facade.cli.display import RunProgress
    from facade.runtimes.local import run as run_locally

    results = {}
    sizes = next(iter(experiments.values())).data.sizes
    with RunProgress(err, sizes) as progress:
        for name, experiment in experiments.items():
            progress.start(name.rpartition(":")[2], experiment.training.rounds)
            results[name] = run_locally(experiment, base if single else base / name, progress=progress)
    return results


def _print_results(results: dict[str, Result]) -> None:
    from facade.cli.display import head_strip, results_table, settlement

    first = next(iter(results.values()))
    sizes = first.experiment.data.sizes
    out.print()
    out.print(results_table({name: r.summary for name, r in results.items()}, sizes))
    cluster = [c for c, size in enumerate(sizes) for _ in range(size)]
    for name, result in results.items():
        said = settlement(result.summary, cluster, sizes)
        if said:
            out.print(
                f"\n[bold]{name}[/bold]: the head each node chose, clusters side by side. {said}", highlight=False
            )
            out.print(head_strip(result.rows, sizes, out.width), end="")


def _print_demo_verdict(results: dict[str, Result], base: Path) -> None:
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
    out.print(f"\n{verdict}", highlight=False)
    out.print(
        f"\nWritten to {base}. Next:\n"
        f"  facade run {base}/facade/experiment.toml --set data.clusters=20:10:2 --set algorithm.heads=3\n"
        f"  facade run {base}/facade/experiment.toml --set network.loss=0.2\n"
        "  facade list algorithms",
        highlight=False,
        soft_wrap=True,
    )


def _print_json(results: dict[str, Result], base: Path) -> None:
    summaries = {name: result.summary for name, result in results.items()}
    print(json.dumps({"run_dir": str(base), "algorithms": summaries}))
