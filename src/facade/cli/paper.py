"""`facade paper`: a figure or table of the paper, computed again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from facade.cli.console import out
from facade.cli.sweep import parse_seeds, print_plan
from facade.errors import ExperimentError, FacadeError, StoppedError, unknown
from facade.runs.stop_signals import StopSignals

if TYPE_CHECKING:
    from facade.cli.progress import SweepProgress
    from facade.paper.settings import Part, Scale
    from facade.paper.study import BesidePublished, Finished, Study
    from facade.sweep.jobs import Job


def paper(
    which: Annotated[
        str, typer.Argument(metavar="ID", help="F1, F3 to F20, T1 to T4, theory, ...; list; all; reproduction.")
    ],
    data: Annotated[Path, typer.Option(help="The directory that holds all data sets.")] = Path("data"),
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
) -> None:
    """Compute a figure or table of the paper again and print it beside the published numbers.

    `reproduction` computes the main experiment at full length, keeps what every run found in results/
    and writes docs/reproduction.md from it; with --quick, both below --out.
    """
    from facade.paper.settings import Scale
    from facade.report.panels import need_plotting

    need_plotting()
    from facade.paper.studies import STUDIES

    if draw and which != "reproduction":
        raise ExperimentError(
            "--draw belongs to reproduction; other studies do not compute again what they have computed before"
        )
    scale = Scale(quick, parse_seeds(seeds), rounds, data)
    if which == "list":
        for study in STUDIES.values():
            out.print(f"{study.id:>9}  {study.title}", soft_wrap=True)
    elif which == "all":
        _all(list(STUDIES.values()), scale, out_dir)
    elif which == "reproduction":
        if seeds or rounds:
            raise ExperimentError("reproduction picks no seeds and no rounds; leave --seeds and --rounds out")
        if not draw:
            _reproduce(scale, out_dir)
        _draw(scale, out_dir)
    elif which not in STUDIES:
        raise unknown("figure or table", which, [*STUDIES, "list", "all", "reproduction"])
    else:
        _make(STUDIES[which], scale, out_dir)


def _all(studies: list[Study], scale: Scale, out_dir: Path) -> None:
    from facade.paper import contact_sheet

    pictures = [_make(study, scale, out_dir) for study in studies]
    path = contact_sheet.write(pictures, out_dir / "contact-contact_sheet.png")
    out.print(f"All of them: {path}", soft_wrap=True)


def _make(study: Study, scale: Scale, out_dir: Path) -> Path:
    """Run what is missing, draw, compare; the picture."""
    from facade.files import store
    from facade.paper.settings import jobs
    from facade.paper.study import to_csv
    from facade.report import panels

    out.print(f"\n{study.id}: {study.title}", style="bold")
    note = study.note(scale)
    if note:
        out.print(note, style="yellow", soft_wrap=True)
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
    out.print(f"Written: {', '.join(map(str, written))}", soft_wrap=True)
    return written[0]


def _run(planned: list[Job]) -> None:
    """Compute the runs that are not there yet, after saying what that will cost."""
    todo = [job for job in planned if not job.finished]
    if not planned:
        return
    print_plan(planned, todo, 1)
    from facade.cli.progress import SweepProgress

    with SweepProgress(len(planned), len(planned) - len(todo)) as progress:
        _compute(todo, progress)


def _compute(todo: list[Job], progress: SweepProgress) -> None:
    """Compute runs one after the other; what stops or fails ends it."""
    from facade.sweep.process_pool import compute_all

    stop_signals = StopSignals()
    for end in compute_all(todo, 1, progress.told, stop_signals):
        progress.ended(end)
        if end.ended == "failed":
            raise FacadeError(f"{end.job.path.name} failed: {end.reason}")
    if stop_signals.received is not None:
        raise StoppedError("stopped; give the same command to go on", stop_signals.received)


def _places(scale: Scale, out_dir: Path) -> tuple[Path, Path]:
    """Where the reproduction keeps runs and writes its page; a quick one must not replace the real one."""
    if scale.quick:
        return out_dir / "results", out_dir / "reproduction.md"
    return Path("results"), Path("docs/reproduction.md")


def _reproduce(scale: Scale, out_dir: Path) -> None:
    """Compute the runs of the reproduction one by one and keep what each found as soon as it ends. What
    to compute next may follow from what was found."""
    from facade.cli.progress import SweepProgress
    from facade.paper.reproduction import Kept, plan
    from facade.runs.archive import archive
    from facade.sweep.jobs import Job

    results, _ = _places(scale, out_dir)
    kept = Kept(results)
    while True:
        planned = plan(scale, kept)
        todo = [run for run in planned if kept.get(run) is None]
        if not todo:
            return
        out.print(
            f"{len(planned)} runs, {len(planned) - len(todo)} of them kept in {results}. Next:"
            f" {todo[0].part.title}, {todo[0].label}, seed {todo[0].experiment.seed}.", soft_wrap=True,
        )  # fmt: skip
        job = Job(todo[0].experiment, out_dir / "runs" / todo[0].name, ())
        if not job.finished:
            with SweepProgress(1, 0) as progress:
                _compute([job], progress)
        archive(job.path, results)


def _draw(scale: Scale, out_dir: Path) -> None:
    """Write the page of the reproduction from what is kept."""
    from facade.paper.page import write

    results, page = _places(scale, out_dir)
    if not results.is_dir():
        raise FacadeError(f"{results}/ is not here; call this where the repository lies, or leave --draw out")
    written = write(page, results, scale)
    out.print(f"Written: {', '.join(map(str, written))}", soft_wrap=True)


def _finished(planned: dict[Part, list[Job]], scale: Scale) -> Finished:
    from facade.paper.study import Finished
    from facade.runs.history import load_all

    return Finished({part: load_all([job.path for job in some]) for part, some in planned.items()}, scale)


def _print(lines: list[BesidePublished], sentences: list[str]) -> None:
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
