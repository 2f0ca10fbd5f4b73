"""The commands by name, and the options of all of them. Commands import torch and their own libraries when they are
called, so that `--help` answers at once."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated

import typer

import facade
from facade.cli import data, network, node
from facade.cli.bench import bench
from facade.cli.check import check
from facade.cli.console import out
from facade.cli.demo import demo
from facade.cli.export import export, recommend
from facade.cli.list import list_
from facade.cli.node_studies import add_study, archive, studies
from facade.cli.paper import paper
from facade.cli.report import report
from facade.cli.run import run
from facade.cli.show import show
from facade.cli.study import study
from facade.cli.sweep import sweep
from facade.cli.watch import watch

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
class CommonOptions:
    """Options of every command."""

    debug: bool = False


def _print_version(wanted: bool) -> None:
    if wanted:
        out.print(f"facade {facade.__version__}")
        raise typer.Exit


@app.callback()
def read_options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error was raised.")] = False,
) -> None:
    """Options of every command."""
    context.ensure_object(CommonOptions).debug = debug
    # Names such as my_algorithm:Mine are looked for where the user is; last, so that no file there stands in for a
    # library.
    sys.path.append("")


app.command()(demo)
app.command()(run)
app.command("list")(list_)
app.command()(sweep)
app.command()(watch)
app.command()(show)
app.command()(check)
app.command()(export)
app.command()(recommend)
app.command()(bench)
app.command()(report)
app.command()(paper)
app.command()(study)
app.add_typer(data.app, name="data")
app.add_typer(network.app, name="network")
node.app.command("studies")(studies)
node.app.command("add-study")(add_study)
node.app.command("archive")(archive)
app.add_typer(node.app, name="node")
