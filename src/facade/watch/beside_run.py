"""The page beside a run that is being computed: in a process of its own, which can neither disturb the run nor outlive
it. It ends when its standard input does, however the run ends."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

_LESS_URGENT = 5
"""What is added to the niceness, so that the run comes first."""
_SECONDS = 5.0
"""In which the process ends when it is told to."""


@contextlib.contextmanager
def page_beside(directory: Path, say: Callable[[str], None]) -> Iterator[None]:
    """A page on a run directory, which need not be there yet, while the with-block goes on; its address is said before.
    What goes wrong with it is said too, and changes nothing else."""
    try:
        process = _started(directory)
    except OSError as error:
        say(f"warning: there is no page to watch this run ({error.strerror}); it goes on without")
        yield
        return
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        address = process.stdout.readline().decode().strip()
        say(f"Watch this run at {address}" if address else "warning: the page to watch this run did not start")
        yield
    finally:
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _started(directory: Path) -> subprocess.Popen[bytes]:
    """The process, in a session of its own: Ctrl-C is for the run."""
    return subprocess.Popen(
        [sys.executable, "-m", "facade.watch.beside_run", str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def main(directory: str) -> None:
    """The body of the process: print the address, and serve until standard input ends."""
    from facade.watch.places import Places
    from facade.watch.serving import page_server, serving
    from facade.watch.watching import Watching

    os.nice(_LESS_URGENT)
    server = page_server(Watching(Places([Path(directory)], awaited=True)))
    print(server.url, flush=True)
    with serving(server):
        sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1])
