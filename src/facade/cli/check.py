"""`facade check`: a gate that fails when the minority is hurt."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from facade.cli.console import Json, prose, write_json
from facade.cli.options import Runs

if TYPE_CHECKING:
    from rich.console import Console

    from facade.analysis.fairness_gate import Verdict

STYLES = {"kept": "green", "broken": "bold red", "not judged": "yellow"}


def check(
    runs: Runs,
    contract: Annotated[Path, typer.Option(help="The clauses, a TOML file.")],
    against: Annotated[
        list[Path] | None, typer.Option(help="Runs of 'local', for min_gain_over_local. Repeatable.")
    ] = None,
    junit: Annotated[Path | None, typer.Option(help="Also write the verdicts as JUnit XML.")] = None,
    as_json: Json = False,
) -> None:
    """Judge runs by a contract; exit code 1 if a clause is broken, 2 if one cannot be judged."""
    from facade.analysis import fairness_gate as contracts
    from facade.errors import ExperimentError, StorageError
    from facade.files import store
    from facade.runs.history import load_all, unsealed

    clauses = contracts.read(contract)
    judged, others = load_all(runs, whole=True), load_all(against or [], whole=True)
    verdicts = contracts.judge(clauses, judged, others)
    _print(prose(as_json), verdicts)
    if word := unsealed([*judged, *others]):
        prose(as_json).print(word, style="dim", soft_wrap=True)
    if junit is not None:
        try:
            store.replace(junit, contracts.to_junit(verdicts))
        except StorageError as error:  # its code would say that a clause is broken
            raise ExperimentError(f"--junit: {error}") from error
    if as_json:
        write_json({"verdicts": [_facts(verdict) for verdict in verdicts]})
    raise typer.Exit(contracts.exit_code(verdicts))


def _print(console: Console, verdicts: list[Verdict]) -> None:
    """Every experiment with the verdicts on it, one sentence each."""
    experiment = None
    for verdict in verdicts:
        if verdict.experiment != experiment:
            experiment = verdict.experiment
            console.print(experiment, style="bold", soft_wrap=True)
        console.print(f"  {verdict.sentence}", style=STYLES[verdict.outcome], soft_wrap=True)
    counts = Counter(verdict.outcome for verdict in verdicts)
    rest = "".join(f", {counts[outcome]} {outcome}" for outcome in ("broken", "not judged") if counts[outcome])
    console.print(f"{counts['kept']} of {len(verdicts)} clauses kept{rest}")


def _facts(verdict: Verdict) -> dict[str, Any]:
    """A verdict for programs; its number is null where there is none to compare."""
    estimate = verdict.estimate
    return {
        "experiment": verdict.experiment,
        "clause": verdict.clause,
        "limit": verdict.limit,
        "measure": verdict.measure.name,
        "outcome": verdict.outcome,
        "mean": estimate.mean if estimate else None,
        "interval": estimate.interval._asdict() if estimate and estimate.interval else None,
        "reason": verdict.reason,
    }
