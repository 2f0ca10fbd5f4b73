"""`facade paper reproduction`: the main experiment at full length, run by run, and its page."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from facade.cli.console import out
from facade.cli.sweep import compute_one_by_one
from facade.errors import ExperimentError, FacadeError

if TYPE_CHECKING:
    from facade.paper.settings import Scale


class Place(NamedTuple):
    """Where the reproduction is written."""

    runs: Path
    """Runs under way, with their models."""
    results: Path
    """What is kept of every run."""
    page: Path


def place_of(scale: Scale, out_dir: Path, results: Path | None, page: Path | None) -> Place:
    """The options, completed: in a clone by its results/ and docs/reproduction.md, which a quick reproduction must not
    replace; nowhere else, since there nobody asked for such directories."""
    if scale.quick:
        own = Place(out_dir / "runs", out_dir / "results", out_dir / "reproduction.md")
    elif (results is None or page is None) and not _is_clone(Path()):
        raise ExperimentError(
            "reproduction writes results/ and docs/reproduction.md of a clone of the repository, and this directory is"
            " none; call it in a clone, or name others with --results DIR --page FILE.md"
        )
    else:
        own = Place(out_dir / "runs", Path("results"), Path("docs/reproduction.md"))
    return own._replace(results=results or own.results, page=page or own.page)


def _is_clone(directory: Path) -> bool:
    """Whether this project's repository lies here."""
    try:
        project = tomllib.loads((directory / "pyproject.toml").read_text())
    except (OSError, ValueError):
        return False
    return bool(project.get("project", {}).get("name") == "facade-dl")


def reproduce(scale: Scale, place: Place, draw: bool) -> None:
    """Compute what is missing, unless only drawing is wanted, and write the page from what is kept."""
    from facade.paper.reproduction_page import write

    if scale.seeds or scale.rounds:
        raise ExperimentError("reproduction picks no seeds and no rounds; leave --seeds and --rounds out")
    if not draw:
        _compute_missing(scale, place)
    elif not place.results.is_dir():
        raise FacadeError(f"{place.results}/ is not here, so there is nothing to draw; leave --draw out to compute it")
    files = write(place.page, place.results, scale)
    out.print(f"Written: {', '.join(map(str, files))}", soft_wrap=True)


def _compute_missing(scale: Scale, place: Place) -> None:
    """Compute the runs of the reproduction one by one and keep what each found as soon as it ends. What
    to compute next may follow from what was found."""
    from facade.paper.reproduction import KeptRuns, plan
    from facade.runs.archive import archive
    from facade.sweep.jobs import Job

    kept = KeptRuns(place.results)
    while True:
        planned = plan(scale, kept)
        todo = [run for run in planned if kept.get(run) is None]
        if not todo:
            return
        out.print(
            f"{len(planned)} runs, {len(planned) - len(todo)} of them kept in {place.results}. Next:"
            f" {todo[0].part.title}, {todo[0].label}, seed {todo[0].experiment.seed}.", soft_wrap=True,
        )  # fmt: skip
        job = Job(todo[0].experiment, place.runs / todo[0].name, ())
        if not job.finished:
            compute_one_by_one([job], [job])
        archive(job.path, place.results)
