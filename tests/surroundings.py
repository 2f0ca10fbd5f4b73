"""What lies around the library: its repository, another interpreter, a full disk, a reader of its tables."""

import csv
import errno
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
EXPERIMENTS = ROOT / "experiments"


def loaded_by(program, *names):
    """Those of the named modules that an interpreter of its own has loaded when the program is over."""
    tell = f"import atexit, sys\natexit.register(lambda: print(*(n for n in {names!r} if n in sys.modules)))\n"
    done = subprocess.run([sys.executable, "-c", tell + program], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1].split()


def no_space(*_):
    """What a call of the system does on a full disk."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def csv_lines(text):
    """A table's lines, each a dict by heading."""
    return list(csv.DictReader(text.splitlines()))
