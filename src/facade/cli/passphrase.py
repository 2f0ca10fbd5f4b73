"""The passphrase of encrypted keys, of a site or an admin: from a file, from systemd, or from the terminal."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from facade.errors import ExperimentError

CREDENTIAL = "facade-passphrase"
"""The name of the credential by which systemd hands it over, in the directory $CREDENTIALS_DIRECTORY."""

PassphraseFile = Annotated[
    Path | None,
    typer.Option(
        help="Read the passphrase of encrypted keys from this file, or /dev/fd/N.",
        show_default=f"$CREDENTIALS_DIRECTORY/{CREDENTIAL}, or ask",
    ),
]


def asking(file: Path | None, twice: bool = False) -> Callable[[], bytes]:
    """What gives the passphrase when it is needed; `twice`: a new one, which must be typed twice."""

    def ask() -> bytes:
        given = file or _credential()
        if given is not None:
            return _first_line(given)
        if not sys.stdin.isatty():
            raise ExperimentError(
                "the passphrase of the keys is needed, and there is no terminal to ask for it; give"
                f" --passphrase-file FILE, or have systemd hand it over: LoadCredential={CREDENTIAL}:FILE"
            )
        text: str = typer.prompt("Passphrase of the keys", hide_input=True, confirmation_prompt=twice, err=True)
        return text.encode()

    return ask


def new_passphrase(encrypt: bool, file: Path | None) -> bytes | None:
    """The passphrase of keys that are about to be made; None if they are not to be encrypted."""
    if file is not None and not encrypt:
        raise ExperimentError("--passphrase-file is for encrypted keys; add --encrypt-key, or leave it out")
    return asking(file, twice=True)() if encrypt else None


def _credential() -> Path | None:
    directory = os.environ.get("CREDENTIALS_DIRECTORY")
    path = Path(directory) / CREDENTIAL if directory else None
    return path if path is not None and path.exists() else None


def _first_line(path: Path) -> bytes:
    """What a file holds, without the end of its line; ExperimentError if that is nothing, or others can read it."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if stat.S_ISREG(mode) and mode & 0o077:
                raise ExperimentError(f"{path} can be read by others than its owner; run: chmod 600 {quote(str(path))}")
            line = file.readline().rstrip(b"\r\n")
    except OSError as error:
        raise ExperimentError(f"the passphrase cannot be read from {path} ({error.strerror})") from None
    if not line:
        raise ExperimentError(f"{path} holds no passphrase; it must be its first line")
    return line
