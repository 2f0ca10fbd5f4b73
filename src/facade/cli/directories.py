"""Where a run goes if nobody says so: below runs/, under a name that is free."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from facade.experiment.config import Experiment


def fresh_directory(name: str) -> Path:
    """runs/NAME, or the first of runs/NAME-2, -3, ... that does not exist yet."""
    return next(path for path in _numbered(name) if not path.exists())


def _numbered(name: str) -> Iterator[Path]:
    """runs/NAME, runs/NAME-2, runs/NAME-3, ..."""
    yield Path("runs") / name
    yield from (Path("runs") / f"{name}-{count}" for count in itertools.count(2))


def run_directory(experiment: Experiment, resume: bool) -> Path:
    """The directory of an experiment's run: a fresh one or, to resume, that of its last run."""
    from facade.core.names import short
    from facade.experiment.decisive_settings import decisive_settings
    from facade.runs.run_directory import RunDirectory

    name = f"{experiment.name}-{short(experiment.algorithm['name'])}-seed{experiment.seed}"
    wanted = decisive_settings(experiment.model_dump())
    earlier = [RunDirectory(path) for path in itertools.takewhile(Path.exists, _numbered(name))] if resume else []
    same = [run.path for run in earlier if run.started and decisive_settings(run.experiment()) == wanted]
    return same[-1] if same else fresh_directory(name)
