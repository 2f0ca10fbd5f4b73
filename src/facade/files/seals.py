"""Seals: the SHA-256 of a file, kept in the file itself or in another, so that damage is noticed before the file is
used.

A sealed JSON file ends with the SHA-256 of all that stands before; it may list those of other files as `files`. A
sealed text ends with a comment that says the same. Files of versions before there were seals have none: they count as
not sealed, which is no error.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from facade.errors import DamagedFileError

FILES, OWN = "files", "sha256"
"""Keys of a sealed JSON file: the seals of other files by name, and its own. One changed bit spoils one of them at
most, so that a file which lists others and has no seal of its own is damaged."""
_JSON_END = ',\n "sha256": "%s"\n}\n'
_COMMENT = re.compile(rb"# sha256 of all above: ([0-9a-f]{64})\n\Z")
_LIKE_A_COMMENT = re.compile(rb"\n# [^\n]{20}: [^\n]{64}.?\Z", re.DOTALL)
"""What one changed bit makes of such a comment at the end is like it still."""
_COPY = "restore it from a copy, or compute the run again"


class SealedJson(NamedTuple):
    """What a JSON file says."""

    content: dict[str, Any]
    """Without its seals."""
    files: dict[str, str] | None
    """The seals of other files by name; None where there are none."""


def sha256(content: bytes | memoryview) -> str:
    """Hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def sha256_of(path: Path) -> str:
    """Of a file, which is never all in memory; DamagedFileError if it is not there."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise unreadable(path, error) from None


def check(path: Path, found: str, expected: str, remedy: str = _COPY) -> None:
    """DamagedFileError unless the SHA-256 of a file is the one that was written down."""
    if found != expected:
        raise DamagedFileError(
            f"{path} is damaged, or was changed: its SHA-256 is {found[:16]}..., {expected[:16]}... was expected;"
            f" {remedy}"
        )


def unreadable(path: Path, error: Exception) -> DamagedFileError:
    """The error for a file that cannot be read, or not as what it is."""
    reason = getattr(error, "strerror", None) or error
    return DamagedFileError(f"{path} cannot be read ({reason}); {_COPY}")


def sealed_json(content: Mapping[str, Any], files: Mapping[str, str] | None = None) -> bytes:
    """A JSON file, which people can read, with its seal and those of other files."""
    whole = {**content, FILES: dict(files)} if files is not None else dict(content)
    body = json.dumps(whole, indent=1).removesuffix("\n}")
    return (body + _JSON_END % sha256(body.encode())).encode()


def read_json(path: Path) -> SealedJson:
    """A JSON file, its seal checked where it has one."""
    try:
        written = path.read_bytes()
        content = json.loads(written)
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    if not isinstance(content, dict):
        raise unreadable(path, ValueError("no JSON object"))
    files, own = content.pop(FILES, None), content.pop(OWN, None)
    if files is not None or own is not None:
        body = written[: -len(_JSON_END % sha256(b""))]
        if written != body + (_JSON_END % sha256(body)).encode():
            check(path, sha256(body), f"{own}")
            raise unreadable(path, ValueError("it is not as it was written"))
    return SealedJson(content, files)


def sealed_text(text: str) -> bytes:
    """A text whose comments begin with #, and its seal."""
    return text.encode() + f"# sha256 of all above: {sha256(text.encode())}\n".encode()


def check_text(path: Path, written: bytes, remedy: str = _COPY) -> None:
    """DamagedFileError if a text has a seal that does not fit it."""
    comment = _COMMENT.search(written)
    if comment is not None:
        check(path, sha256(written[: comment.start()]), comment[1].decode(), remedy)
    elif _LIKE_A_COMMENT.search(written):
        raise DamagedFileError(f"{path} is damaged: the checksum in its last line cannot be read; {remedy}")
