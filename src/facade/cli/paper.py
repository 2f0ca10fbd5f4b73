"""`facade paper`: a figure or table of the paper, computed again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from facade.cli.console import out
from facade.cli.sweep import SweepProgress, parse_seeds, print_plan
from facade.errors import FacadeError, StoppedError, unknown

if TYPE_CHECKING:
    from facade.paper.done import Beside, Finished, Study
    from facade.paper.settings import Part, Scale
    from facade.sweep import Job


def paper(
    which: Annotated[str, typer.Argument(metavar="ID", help="F1, F3 to F20, T1 to T4, theory, ...; `list`; `all`.")],
    data: Annotated[Path, typer.Option(help="The directory that holds all data sets.")] = Path("data"),
    out_dir: Annotated[
        Path, typer.Option("--out", help="Directory for runs and figures; studies share runs in it.")
    ] = Path("runs/paper"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Digits and few rounds: minutes, and labelled as such.")
    ] = False,
    seeds: Annotated[str, typer.Option(help="Seeds, such as 1,2,3.", show_default="the paper's")] = "",
    rounds: Annotated[int | None, typer.Option(min=1, help="Fewer rounds.", show_default="the paper's")] = None,
) -> None:
    """Compute a figure or table of the paper again and print it beside the published numbers."""
    from facade.paper.settings import Scale
    from facade.report.panels import need_plotting

    need_plotting()
    from facade.paper.studies import STUDIES

    scale = Scale(quick, parse_seeds(seeds), rounds, data)
    if which == "list":
        for study in STUDIES.values():
            out.print(f"{study.id:>9}  {study.title}", highlight=False, markup=False, soft_wrap=True)
    elif which == "all":
        _all(list(STUDIES.values()), scale, out_dir)
    elif which not in STUDIES:
        raise unknown("figure or table", which, [*STUDIES, "list", "all"])
    else:
        _make(STUDIES[which], scale, out_dir)


def _all(studies: list[Study], scale: Scale, out_dir: Path) -> None:
    from facade.paper import sheet

    pictures = [_make(study, scale, out_dir) for study in studies]
    path = sheet.write(pictures, out_dir / "contact-sheet.png")
    out.print(f"All of them: {path}", highlight=False, soft_wrap=True)


def _make(study: Study, scale: Scale, out_dir: Path) -> Path:
    """Run what is missing, draw, compare; the picture."""
    from facade import store
    from facade.paper.done import to_csv
    from facade.paper.settings import jobs
    from facade.report import panels

    out.print(f"\n{study.id}: {study.title}", style="bold", highlight=False, markup=False)
    note = study.note(scale)
    if note:
        out.print(note, style="yellow", highlight=False, markup=False, soft_wrap=True)
    planned = jobs(study.parts, scale, out_dir)
    _run(list({job.path: job for part in planned.values() for job in part}.values()))
    done = _finished(planned, scale)
    figure = panels.Figure(study.id, f"{study.id}: {study.title}", "", study.draw(done), study.columns, note)
    if not figure.panels:
        raise FacadeError(f"{study.id} has nothing to draw; give more rounds or seeds")
    written = [panels.write(figure, out_dir, format) for format in ("png", "pdf")]
    lines = study.compare(done)
    if lines:
        store.replace(out_dir / f"{study.id}.csv", to_csv(lines, note).encode())
        written.append(out_dir / f"{study.id}.csv")
    _print(lines, study.say(done))
    out.print(f"Written: {', '.join(map(str, written))}", highlight=False, soft_wrap=True)
    return written[0]


def _run(planned: list[Job]) -> None:
    """Compute the runs that are not there yet, after saying what that will cost."""
    from facade.crew import compute_all

    todo = [job for job in planned if not job.finished]
    if not planned:
        return
    print_plan(planned, todo, 1)
    with SweepProgress(len(planned), len(planned) - len(todo)) as progress:
        for end in compute_all(todo, 1, progress.told):
            progress.ended(end)
            if end.ended == "stopped":
                raise StoppedError("stopped; give the same command to go on", 2)
            if end.ended == "failed":
                raise FacadeError(f"{end.job.path.name} failed: {end.reason}")


def _finished(planned: dict[Part, list[Job]], scale: Scale) -> Finished:
    from facade.history import load
    from facade.paper.done import Finished

    return Finished({part: [load(job.path) for job in some] for part, some in planned.items()}, scale)


def _print(lines: list[Beside], sentences: list[str]) -> None:
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
        out.print(sentence, highlight=False, markup=False, soft_wrap=True)
