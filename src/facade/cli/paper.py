"""`facade paper`: a figure or table of the paper, computed again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from facade.cli.console import out
from facade.cli.options import DataRoot
from facade.cli.reproduction import place_of, reproduce
from facade.cli.sweep import compute_one_by_one, parse_seeds, print_plan
from facade.errors import ExperimentError, FacadeError, unknown

if TYPE_CHECKING:
    from facade.paper.settings import Scale
    from facade.paper.study import PublishedComparison, Study
    from facade.sweep.jobs import Job


def paper(
    which: Annotated[
        str, typer.Argument(metavar="ID", help="F1, F3 to F20, T1 to T4, theory, ...; list; all; reproduction.")
    ],
    data: DataRoot = Path("data"),
    out_dir: Annotated[
        Path, typer.Option("--out", help="Directory for runs and figures; studies share runs in it.")
    ] = Path("runs/paper"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Digits and few rounds: minutes, and labelled as such.")
    ] = False,
    seeds: Annotated[str, typer.Option(help="Seeds, such as 1,2,3 or 1-3.", show_default="the paper's")] = "",
    rounds: Annotated[int | None, typer.Option(min=1, help="Fewer rounds.", show_default="the paper's")] = None,
    draw: Annotated[
        bool, typer.Option("--draw", help="reproduction: compute nothing, draw from the runs in results/.")
    ] = False,
    results: Annotated[
        Path | None, typer.Option(help="reproduction: where runs are kept.", show_default="results/ of a clone")
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(help="reproduction: the page to write.", show_default="docs/reproduction.md of a clone"),
    ] = None,
) -> None:
    """Compute a figure or table of the paper again and print it beside the published numbers.

    `reproduction` computes the main experiment at full length, keeps what every run found in results/
    of a clone and writes its docs/reproduction.md; --results and --page name other places, and with
    --quick both are below --out.
    """
    from facade.paper.settings import Scale
    from facade.report.panels import need_plotting

    need_plotting()
    scale = Scale(quick, parse_seeds(seeds), rounds, data)
    if which == "reproduction":
        reproduce(scale, place_of(scale, out_dir, results, page), draw)
        return
    _refuse({"--draw": draw, "--results": results, "--page": page})
    _studies(which, scale, out_dir)


def _refuse(options: dict[str, Any]) -> None:
    """Refuse what only the reproduction understands."""
    for option, value in options.items():
        if value:
            raise ExperimentError(
                f"{option} belongs to reproduction; leave it out (other studies keep everything below --out"
                " and compute nothing twice)"
            )


def _studies(which: str, scale: Scale, out_dir: Path) -> None:
    """Make one study, or all, or say which there are."""
    from facade.paper.studies import STUDIES

    if which == "list":
        for study in STUDIES.values():
            out.print(f"{study.id:>9}  {study.title}", soft_wrap=True)
    elif which == "all":
        _all(list(STUDIES.values()), scale, out_dir)
    elif which not in STUDIES:
        raise unknown("figure or table", which, [*STUDIES, "list", "all", "reproduction"])
    else:
        _make(STUDIES[which], scale, out_dir)


def _all(studies: list[Study], scale: Scale, out_dir: Path) -> None:
    from facade.paper import contact_sheet

    pictures = [_make(study, scale, out_dir) for study in studies]
    path = contact_sheet.write(pictures, out_dir / "contact-sheet.png")
    out.print(f"All of them: {path}", soft_wrap=True)


def _make(study: Study, scale: Scale, out_dir: Path) -> Path:
    """Run what is missing, draw, compare; the picture."""
    from facade.files import store
    from facade.paper.settings import jobs_of
    from facade.paper.study import StudyRuns, to_csv
    from facade.report import panels
    from facade.runs.history import load_all

    out.print(f"\n{study.id}: {study.title}", style="bold")
    note = study.note(scale)
    if note:
        out.print(note, style="yellow", soft_wrap=True)
    planned = jobs_of(study.parts, scale, out_dir)
    _run(list({job.path: job for part in planned.values() for job in part}.values()))
    runs = StudyRuns({part: load_all([job.path for job in jobs]) for part, jobs in planned.items()}, scale)
    figure = panels.Figure(study.id, f"{study.id}: {study.title}", "", study.draw(runs), study.columns, note)
    if not figure.panels:
        raise FacadeError(f"{study.id} has nothing to draw; give more rounds or seeds")
    written = [panels.write(figure, out_dir, format) for format in ("png", "pdf")]
    lines = study.compare(runs)
    if lines:
        store.replace(out_dir / f"{study.id}.csv", to_csv(lines, note).encode())
        written.append(out_dir / f"{study.id}.csv")
    _print(lines, study.say(runs))
    out.print(f"Written: {', '.join(map(str, written))}", soft_wrap=True)
    return written[0]


def _run(planned: list[Job]) -> None:
    """Compute the runs that are not there yet, after saying what that will cost."""
    if not planned:
        return
    todo = [job for job in planned if not job.finished]
    print_plan(planned, todo, 1)
    compute_one_by_one(planned, todo)


def _print(lines: list[PublishedComparison], sentences: list[str]) -> None:
    """Ours beside the published numbers, and what must be said."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("", no_wrap=False)
    for heading in ("ours", "published", "difference"):
        table.add_column(heading, justify="right", no_wrap=True)
    for line in lines:
        table.add_row(*line.cells)
    if lines:
        out.print(table)
    for sentence in sentences:
        out.print(sentence, soft_wrap=True)
