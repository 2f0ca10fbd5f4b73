"""Putting a study away: its directory is kept, and nothing plays it any more."""

from __future__ import annotations

import datetime
import itertools
import os
from pathlib import Path

from facade.errors import ExperimentError
from facade.files import store
from facade.peers.trust.studies import ARCHIVE, LIST, MAIN, RUN, Study, chosen_studies
from facade.runs.run_directory import BusyError, RunDirectory


def archive(home: Path, name: str, give_up: bool = False) -> Path:
    """Move a study that is finished, or with `give_up` one that is not, below the archive; where to. A list that lies
    there and is another run's stays where it is."""
    (study,) = chosen_studies(home, [name])
    if not study.is_there:
        raise ExperimentError(f"{study.directory} holds no study to put away: neither a list nor a run is there")
    try:
        with RunDirectory(study.run).claimed():
            if not give_up and not study.is_finished:
                raise ExperimentError(
                    f"study '{study.name}' is not finished, and other sites may need this one; play it to its end with:"
                    f" facade node up --study {study.name}, or add --give-up to put it away as it is"
                )
            return _put_away(home, study)
    except BusyError:
        raise ExperimentError(
            f"study '{study.name}' is being played; stop the node with SIGTERM, and put it away then"
        ) from None


def _put_away(home: Path, study: Study) -> Path:
    """Whatever a crash leaves of this is put away by the next attempt: the run, without which nothing is played again,
    is moved last."""
    target, stray = _target(home, study), study.is_stray
    with store.writing(target):
        store.make_directory(target.parent)
        if study.name != MAIN and not stray:
            os.replace(study.directory, target)
        else:
            store.make_directory(target)
            if stray:
                store.replace(target / LIST, study.kept_lists[-1].read_bytes(), store.PRIVATE)
            elif study.list_path.exists():
                os.replace(study.list_path, target / LIST)
                store.sync(study.directory)
            os.replace(study.run, target / RUN)
            store.sync(target)
            store.sync(study.directory)
        store.sync(target.parent)
    return target


def _target(home: Path, study: Study) -> Path:
    """A new directory, named after the study and the day, or the one that an interrupted attempt has begun to fill."""
    day = datetime.datetime.now(datetime.UTC).date()
    for number in itertools.count(1):
        target = home / ARCHIVE / (f"{study.name}-{day}" + (f"-{number}" if number > 1 else ""))
        begun = not study.list_path.exists() and target.exists() and not (target / RUN).exists()
        if begun or not target.exists():
            return target
    raise AssertionError("there is always a next number")
