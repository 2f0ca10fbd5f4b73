"""`facade report`: one page over many runs."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from facade.cli.console import err, out
from facade.cli.options import MeasureName, Runs
from facade.cli.site_report import report_sites

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from facade.runs.history import History


def report(
    runs: Runs,
    page: Annotated[
        Path | None,
        typer.Option("--out", help="The page to write.", show_default="report.html; of site.json files none"),
    ] = None,
    samples: Annotated[
        bool, typer.Option("--samples", help="Also show images of sources that are not public. Mind whose they are.")
    ] = False,
    figures: Annotated[Path | None, typer.Option(help="Also write every figure as a file into this directory.")] = None,
    format: Annotated[str, typer.Option(help="Of those files: pdf, svg or png.")] = "pdf",
    measure: MeasureName = None,
) -> None:
    """Write one self-contained page: verdict, table with intervals, charts, how to reproduce. Of the
    site.json files of real peers, print fairness across sites, and write a page if --out says where."""
    if all(path.suffix == ".json" for path in runs):
        report_sites(runs, page=page)
        return
    page = page or Path("report.html")
    from facade.errors import ExperimentError
    from facade.report.panels import FORMATS, need_plotting
    from facade.runs.history import judged_by, load_all

    if format not in FORMATS:
        raise ExperimentError(f"--format {format} is not possible; expected one of {', '.join(FORMATS)}")
    need_plotting()
    from facade.report import page as pages
    from facade.report import panels

    histories = judged_by(load_all(runs), measure)
    pages.write(histories, page, samples)
    out.print(f"Written: {page}", soft_wrap=True)
    if figures is not None:
        for figure in pages.figures(histories):
            path = panels.write(figure, figures, format)
            out.print(f"Written: {path}", soft_wrap=True)


def leave_report(console: Console, runs: Sequence[History], directory: Path) -> None:
    """Write report.html into the directory and say where it is, or say how to get it."""
    from facade.errors import FacadeError
    from facade.report.panels import need_plotting

    path = directory / "report.html"
    try:
        need_plotting()
    except FacadeError:
        err.print(
            f"For a page with charts: pip install 'facade-dl[report]', then: facade report"
            f" {quote(str(directory))} --out {quote(str(path))}",
            soft_wrap=True,
        )
        return
    from facade.report import page as pages

    pages.write(runs, path)
    console.print(f"Report: {path}", soft_wrap=True)
