"""Where the command line prints: results on standard output, everything else on standard error."""

from __future__ import annotations

import json
import os
import sys
from typing import Annotated, Any

import typer
from rich.console import Console

Json = Annotated[bool, typer.Option("--json", help="One line of JSON on standard output, all else on standard error.")]


class LastingConsole(Console):
    """A console that outlives its reader: when `| head` has seen enough, the rest is dropped and the command goes on
    to its own exit code."""

    def on_broken_pipe(self) -> None:
        """Drop what is printed from now on, and what the interpreter would flush at its end."""
        self.quiet = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.file.fileno())
        os.close(nowhere)


# What is printed may hold paths and names that look like markup, or like an emoji: clusters of "20:100:2".
out = LastingConsole(markup=False, highlight=False, emoji=False)
err = LastingConsole(stderr=True, markup=False, highlight=False, emoji=False)


def prose(as_json: bool) -> Console:
    """Where sentences and tables go: out of the way where standard output is for a program."""
    return err if as_json else out


def write(text: str) -> None:
    """Text for programs on standard output, every character as it is."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        out.on_broken_pipe()


def write_json(value: Any) -> None:
    """One line of JSON on standard output."""
    write(json.dumps(value) + "\n")
