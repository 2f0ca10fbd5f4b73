"""Where the files of a Ray cluster of one's own lie: nobody else can enter, and nothing stays.

Ray opens the directory that it is given, and those below, to everybody (mode 0777): its sockets and logs would be
anybody's. So it gets one inside a directory that its user alone can enter.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from facade.files.locks import lock
from facade.runtimes.ray.errors import ClusterError

_PREFIX = "facade-ray."
_INSIDE = "r"
_SOCKET = f"/{_PREFIX}12345678/{_INSIDE}/session_2026-01-01_00-00-00_000000_1234567/sockets/plasma_store.1"
"""The longest name that Ray gives a socket below the directory for temporary files."""
_LONGEST = 103
"""Bytes that every system takes as the path of a socket."""
_ATTEMPTS = 5


@contextlib.contextmanager
def private_directory() -> Iterator[Path]:
    """A directory for Ray's files, gone afterwards: below TMPDIR, unless that is too long for Ray's sockets. Those of
    processes that were killed before they could remove them go as well."""
    usual = tempfile.gettempdir()
    where = Path(usual if len(os.fsencode(usual + _SOCKET)) <= _LONGEST else "/tmp")
    try:
        _remove_leftovers(where)
        own, handle = _claimed(where)
    except OSError as error:
        raise ClusterError(
            f"Ray needs a directory below {where}, which cannot be made ({error.strerror}); set TMPDIR to a short"
            " path that can be written"
        ) from error
    try:
        inside = own / _INSIDE
        inside.mkdir()
        yield inside
    finally:
        shutil.rmtree(own, ignore_errors=True)
        os.close(handle)


def close_to_others(directory: Path) -> None:
    """Take back what Ray, when it started, gave to everybody."""
    for path in (directory, *directory.glob("session_2*")):
        path.chmod(0o700)


def _claimed(where: Path) -> tuple[Path, int]:
    """A new directory of mode 0700, locked as long as the handle is open, which it is in no other process."""
    for _ in range(_ATTEMPTS):
        own = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=where))
        with contextlib.suppress(FileNotFoundError, BlockingIOError):  # taken for a leftover before it was locked
            handle = os.open(own, os.O_RDONLY | os.O_DIRECTORY)
            try:
                lock(handle)
                os.stat(own)
                return own, handle
            except OSError:
                os.close(handle)
                raise
    raise ClusterError(f"directories below {where} vanish as soon as they are made; set TMPDIR to another one")


def _remove_leftovers(where: Path) -> None:
    """Remove this user's directories that no living process has locked."""
    for path in where.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, or somebody else is quicker
            if path.lstat().st_uid != os.geteuid():
                continue
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if lock(handle):
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(handle)
