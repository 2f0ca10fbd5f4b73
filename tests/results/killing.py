"""Processes that kill themselves with SIGKILL at a given moment of a run.

A moment is a number of executed source lines of this library, so that it can be anywhere: in the
middle of writing rows, between a file and its name, while nodes train.
"""

import multiprocessing
import os
import signal
import sys
import threading
from pathlib import Path

import facade
from facade import Experiment, run
from facade.peers.local_network import PRELOADED

LIBRARY = str(Path(facade.__file__).parent)
SOURCES = [str(path) for path in Path(LIBRARY).rglob("*.py")]
PROCESSES = multiprocessing.get_context("forkserver")
# A process has one fork server, so that it must serve the tests of local networks too.
PROCESSES.set_forkserver_preload(["facade.runtimes.local", *PRELOADED])


class Lines:
    """Counts executed lines, of some files, in the main thread; at `last` the process is no more."""

    def __init__(self, files, last=None):
        for name in files:  # a file that was renamed would be spared without a word
            assert any(path.endswith(name) for path in SOURCES), f"the library has no file {name}"
        self.count = 0
        self._files = files
        self._last = last

    def trace(self, frame, event, argument):
        if not frame.f_code.co_filename.endswith(self._files) or not frame.f_code.co_filename.startswith(LIBRARY):
            return None
        return self._line

    def _line(self, frame, event, argument):
        if event == "line":
            self.count += 1
            if self.count == self._last:
                os.kill(os.getpid(), signal.SIGKILL)
        return self._line


def _run(resolved, out, files, last, counted):
    assert threading.current_thread() is threading.main_thread()
    lines = Lines(tuple(files), last)
    sys.settrace(lines.trace)
    run(Experiment.of(resolved), out, resume=True)
    sys.settrace(None)
    counted.send(lines.count)


def run_until(experiment, out, files=(".py",), last=None):
    """Run or resume in a process of its own that dies at line `last` of the given files; (exit code,
    lines counted if it lived)."""
    receiver, sender = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=_run, args=(experiment.model_dump(), str(out), files, last, sender))
    process.start()
    sender.close()
    try:
        count = receiver.recv()
    except EOFError:
        count = None
    process.join()
    return process.exitcode, count
