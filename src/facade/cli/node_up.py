"""What `facade node up` does and says, with one study or several side by side."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from facade.cli.console import err, out
from facade.cli.site_lines import SiteLines
from facade.errors import FacadeError

if TYPE_CHECKING:
    from facade.peers.node.side_by_side import Asked, Ended, Told
    from facade.peers.trust.identity import Ask
    from facade.peers.trust.studies import Study


def play_one(home: Path, study: Study, asked: Asked, ask: Ask) -> None:
    """Play one study to its end."""
    from facade.peers.node.node import run

    lines = SiteLines(_printed(""))
    outcome = run(
        home,
        study=study.name,
        baseline=asked.baseline,
        without_quorum=asked.without_quorum,
        stay=asked.stay,
        watch=lines.rows,
        listen=lines.event,
        ask=ask,
    )
    out.print(_finished(outcome.id, study), soft_wrap=True)


def play_side_by_side(home: Path, studies: Sequence[Study], asked: Asked, ask: Ask) -> None:
    """Play several, every line with the name of its study; an exit code other than 0 if one has failed."""
    from facade.peers.node.side_by_side import Told, run_side_by_side

    show = warnings.showwarning
    names = {study.name for study in studies}

    def show_warning(message: Warning | str, *more: object) -> None:
        name = threading.current_thread().name
        show(f"{name}: {message}" if name in names else message, *more)  # type: ignore[arg-type]

    def told(study: Study) -> Told:
        lines = SiteLines(_printed(f"{study.name}: "))
        return Told(lines.rows, lines.event)

    def ended(end: Ended) -> None:
        if end.outcome is not None:
            out.print(f"{end.study.name}: {_finished(end.outcome.id, end.study)}", soft_wrap=True)
        else:
            err.print(f"{end.study.name}: stopped: {_sentence(end.error)}", style="red", soft_wrap=True)

    warnings.showwarning = show_warning  # type: ignore[assignment]
    try:
        ends = run_side_by_side(home, studies, asked, told, ended, ask)
    finally:
        warnings.showwarning = show
    _exit_as(ends)


def _exit_as(ends: Sequence[Ended]) -> None:
    """The exit code of the studies that failed, 1 if they differ; nothing if all are finished."""
    failed = [end for end in ends if end.error is not None]
    if not failed:
        return
    names = ", ".join(sorted(end.study.name for end in failed))
    err.print(f"{len(failed)} of {len(ends)} studies did not come to their end: {names}", style="red", soft_wrap=True)
    codes = {end.error.exit_code if isinstance(end.error, FacadeError) else 1 for end in failed}
    raise typer.Exit(codes.pop() if len(codes) == 1 else 1)


def _printed(prefix: str) -> Callable[[str], None]:
    return lambda line: err.print(f"{prefix}{line}", soft_wrap=True)


def _finished(id: str, study: Study) -> str:
    return f"Finished as '{id}'. Written to {study.run}; site.json is for the others."


def _sentence(error: Exception | None) -> str:
    return str(error) if isinstance(error, FacadeError) else f"{type(error).__name__}: {error}"
