"""`facade check`: a gate that fails when the minority is hurt."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from facade.cli.console import out
from facade.cli.show import Runs

STYLES = {"kept": "green", "broken": "bold red", "not judged": "yellow"}


def check(
    runs: Runs,
    contract: Annotated[Path, typer.Option(help="The clauses, a TOML file.")],
    against: Annotated[
        list[Path] | None, typer.Option(help="Runs of 'local', for min_gain_over_local. Repeatable.")
    ] = None,
    junit: Annotated[Path | None, typer.Option(help="Also write the verdicts as JUnit XML.")] = None,
) -> None:
    """Judge runs by a contract; leaves with 1 if a clause is broken, 2 if one cannot be judged."""
    from facade import contract as contracts
    from facade import store
    from facade.errors import ExperimentError, StorageError
    from facade.history import load_all

    clauses = contracts.read(contract)
    verdicts = contracts.judge(clauses, load_all(runs, whole=True), load_all(against or [], whole=True))
    experiment = None
    for verdict in verdicts:
        if verdict.experiment != experiment:
            experiment = verdict.experiment
            out.print(experiment, style="bold")
        out.print(f"  {verdict.sentence}", style=STYLES[verdict.outcome], soft_wrap=True)
    if junit is not None:
        try:
            store.replace(junit, contracts.to_junit(verdicts))
        except StorageError as error:  # its code would say that a clause is broken
            raise ExperimentError(f"--junit: {error}") from error
    code = contracts.exit_code(verdicts)
    kept = sum(verdict.outcome == "kept" for verdict in verdicts)
    out.print(f"{kept} of {len(verdicts)} clauses kept")
    raise typer.Exit(code)
