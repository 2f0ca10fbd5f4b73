"""The command line's entry point: run a command, and turn whatever ends it into one sentence and an exit code."""

from __future__ import annotations

import logging
import sys
import sysconfig
import traceback
import warnings
from pathlib import Path
from typing import Any

import typer

from facade.cli.app import CommonOptions, app
from facade.cli.console import err
from facade.cli.flags import with_flags
from facade.errors import FacadeError, StoppedError


def main() -> None:
    """Run the command line; every refusal is one sentence and an exit code."""
    warnings.showwarning = _show_warning
    logging.basicConfig(format="%(message)s")  # to stderr
    logging.getLogger("facade").setLevel(logging.INFO)
    options = CommonOptions()
    try:
        app(prog_name="facade", standalone_mode=True, obj=options)
    except Exception as error:
        if options.debug:
            traceback.print_exc()
        err.print(_sentence(error), style="red", soft_wrap=True)
        sys.exit(error.exit_code if isinstance(error, FacadeError) else 1)


def _sentence(error: Exception) -> str:
    if isinstance(error, StoppedError):
        return _with_flags(str(error))
    if isinstance(error, FacadeError):
        return _with_flags(f"error: {error}")
    # It is of code of the user's own, or a mistake of ours.
    return f"error: {type(error).__name__}: {error} ({_where(error)}); `facade --debug ...` shows the way there"


def _with_flags(sentence: str) -> str:
    """What the library says, with options of the given command in place of arguments."""
    return with_flags(sentence, typer.main.get_command(app), sys.argv[1:])


def _where(error: Exception) -> str:
    """The last line of the user's own code that an error passed, or the one that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = (str(Path(__file__).parents[1]), sysconfig.get_path("purelib"), sysconfig.get_path("stdlib"))
    own = [frame for frame in frames if not frame.filename.startswith((*ours, "<"))]
    last = (own or frames)[-1]
    return f"{last.filename}, line {last.lineno}, in {last.name}"


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    err.print(_with_flags(f"warning: {message}"), style="yellow", soft_wrap=True)
