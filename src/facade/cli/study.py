"""`facade study`: many runs of one question, and the page drawn from what they found."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from facade.cli.console import out
from facade.errors import unknown


def study(
    name: Annotated[str, typer.Argument(help="Which study: federations, heterogeneity or robustness.")],
    data: Annotated[Path, typer.Option(help="Directory that holds data sets, for the runs that need one.")] = Path(
        "data"
    ),
    results: Annotated[Path, typer.Option(help="Directory in which a line of every run is kept.")] = Path("results"),
    page: Annotated[Path | None, typer.Option(help="The page. Default: docs/NAME.md.")] = None,
    draw: Annotated[bool, typer.Option("--draw", help="Compute nothing; draw the page from what is kept.")] = False,
    long: Annotated[
        bool, typer.Option("--long", help="Also the runs on CIFAR-10, or other images, which take hours.")
    ] = False,
) -> None:
    """Compute what a study has not computed yet, and draw its page."""
    from facade.files import store
    from facade.learning.machine import cores
    from facade.studies.computing import compute
    from facade.studies.kept_lines import KeptLines
    from facade.studies.table import STUDIES

    if name not in STUDIES:
        raise unknown("study", name, STUDIES)
    asked = STUDIES[name]
    kept = KeptLines(results / f"{name}.jsonl.gz")
    if not draw:
        cases = asked.cases() + (asked.long_cases() if long else [])
        out.print(f"{len(kept)} runs are kept in {kept.path}; {len(kept.missing(cases))} are missing.", soft_wrap=True)
        compute(cases, kept, cores(), str(data), lambda words: out.print(words))
    written = page or Path("docs") / f"{name}.md"
    store.replace(written, asked.page(kept).encode())
    out.print(f"Written: {written}", soft_wrap=True)
