"""Fairness across sites: `facade network report`, and `facade report` where it is given site.json files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from facade.cli.console import prose, write_json
from facade.cli.node import need_extra


def report_sites(
    sites: Annotated[list[Path], typer.Argument(help="The site.json files that sites wrote at the end.")],
    membership: Annotated[Path | None, typer.Option(help="Check that members of this list signed them.")] = None,
    page: Annotated[Path | None, typer.Option("--out", help="Also write a page with charts.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON on standard output.")] = False,
) -> None:
    """Fairness across sites, from their signed site.json files: no data and no weights are needed."""
    need_extra()
    if page is not None:
        from facade.report.panels import need_plotting

        need_plotting()
    from facade.cli.display_sites import print_sites
    from facade.peers.after.report import compare_sites

    facts = compare_sites(sites, membership)
    if as_json:
        write_json(facts)
    else:
        print_sites(facts)
    if page is not None:
        from facade.report import site_files_page

        site_files_page.write(facts, membership is not None, page)
        prose(as_json).print(f"Written: {page}", soft_wrap=True)
