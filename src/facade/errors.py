"""What can go wrong, as a small tree. Every message says what happened, what was given, what was
expected and what to do; the command line prints the message and exits with `exit_code`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


class FacadeError(Exception):
    """Anything this library refuses to do or could not finish."""

    exit_code = 1


class ExperimentError(FacadeError):
    """The description of a run is wrong: nothing was computed, nothing was written."""

    exit_code = 2


class DivergedError(FacadeError):
    """A loss or a weight is no longer a finite number."""


class RunDirectoryError(FacadeError):
    """A run directory cannot be used as asked."""

    exit_code = 2


class DamagedFileError(RunDirectoryError):
    """A file is not as it was written: its checksum does not fit, or it cannot be read."""


class StorageError(FacadeError):
    """A file could not be written; what was there before is still good."""


class StoppedError(FacadeError):
    """Somebody asked the run to stop; what was computed is kept."""

    def __init__(self, message: str, signal: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal


def need(extra: str, what: str, *modules: str) -> None:
    """Refuse `what` where the modules that an extra installs are not there."""
    if any(find_spec(module) is None for module in modules):
        raise ExperimentError(f"{what} needs an extra: pip install 'facade-dl[{extra}]'")


def first_mistake(error: ValidationError, known: Iterable[str] = ()) -> str:
    """What pydantic found wrong first; `known` are the keys that there are."""
    first = error.errors()[0]
    where, sentence = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        return str(unknown("key", where, known))
    return f"{where}: {sentence}" if where else sentence


def unknown(kind: str, given: str, known: Iterable[str]) -> ExperimentError:
    """The error for a name that nobody knows, with the nearest known one suggested."""
    names = sorted(known)
    section, dot, key = given.rpartition(".")
    keys = {name.removeprefix(section + dot): name for name in names}  # that the section is right is no likeness
    close = [keys[near] for near in difflib.get_close_matches(key, keys, n=1)]
    hint = f"did you mean '{close[0]}'?" if close else f"known: {', '.join(names)}"
    return ExperimentError(f"unknown {kind} '{given}'; {hint}")
