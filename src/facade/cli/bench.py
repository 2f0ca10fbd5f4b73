"""`facade bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from facade.cli.console import Json, err, prose, write_json
from facade.core.names import look_up


def bench(
    only: Annotated[
        str | None,
        typer.Option(help="One part: efficiency, scaling, overhead, guard, rows, large, evaluation or edges."),
    ] = None,
    runtime: Annotated[
        str,
        typer.Option(help="local; ray: what Ray costs against it; or peers: messages between sites against plain TLS."),
    ] = "local",
    quick: Annotated[bool, typer.Option(help="Fewer repetitions: to see that it works, not to quote.")] = False,
    rows: Annotated[
        int | None, typer.Option(min=50_000, help="How many rows the part of that name records; 100,000 unless given.")
    ] = None,
    out_file: Annotated[Path | None, typer.Option("--out", help="Also write the numbers to this file.")] = None,
    as_json: Json = False,
) -> None:
    """Measure speed as ratios to bare loops, on this machine. Leave it alone meanwhile (25 minutes)."""
    from facade.benchmarks import parts
    from facade.files import store
    from facade.runs.environment import environment

    benchmarks = parts(look_up("runtime", runtime, {name: name for name in ("local", "ray", "peers")}), rows)
    if only:
        benchmarks = {only: look_up("benchmark", only, benchmarks)}
    console = prose(as_json)
    numbers: dict[str, Any] = {"machine": environment(0, "both")}
    for name, part in benchmarks.items():
        err.print(f"measuring {name} ...")
        measured = part(quick)
        numbers |= measured
        for title, values in measured.items():
            console.print(f"\n{title}", style="bold")
            _print(console, values, 1)
        if out_file is not None:  # after every part: they take minutes
            store.replace_json(out_file, numbers)
    if out_file is not None:
        console.print(f"\nWritten to {out_file}", soft_wrap=True)
    if as_json:
        write_json(numbers)


def _print(console: Console, values: Any, depth: int) -> None:
    """Nested numbers, one innermost group a line."""
    if not isinstance(values, dict):
        console.print(f"{'  ' * depth}{values}")
        return
    plain = {k: v for k, v in values.items() if not isinstance(v, dict)}
    if plain:
        line = "  ".join(f"{k.replace('_', ' ')} {v}" for k, v in plain.items())
        console.print(f"{'  ' * depth}{line}", soft_wrap=True)
    for name, inner in values.items():
        if isinstance(inner, dict):
            console.print(f"{'  ' * depth}{name.replace('_', ' ')}")
            _print(console, inner, depth + 1)
