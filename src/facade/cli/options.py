"""Arguments and options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ExperimentFile = Annotated[Path, typer.Argument(help="The experiment, a TOML file.")]
Settings = Annotated[list[str] | None, typer.Option("--set", help="section.key=value, over the file. Repeatable.")]
Preset = Annotated[str | None, typer.Option(help="A named set of settings: artefact.")]
Address = Annotated[
    str | None, typer.Option(help="Head of a running Ray cluster, host:port.", show_default="one of its own")
]
Runs = Annotated[list[Path], typer.Argument(help="Run directories, or directories that hold runs.")]
MeasureName = Annotated[
    str | None,
    typer.Option(
        "--measure",
        help="Judge by accuracy, balanced-accuracy, auc, log-loss or calibration-error.",
        show_default="what the runs say",
    ),
]
DataRoot = Annotated[Path, typer.Option(help="The directory that holds all data sets.")]
