"""One thread per process, and the command line in this process."""

import sys
from typing import NamedTuple

import pytest
import torch

from facade.cli import main

torch.set_num_threads(1)


class Ended(NamedTuple):
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str


@pytest.fixture
def facade(monkeypatch, capsys):
    """The command line, in this process."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["facade", *map(str, arguments)])
        monkeypatch.setattr(sys, "path", list(sys.path))
        with pytest.raises(SystemExit) as ended:
            main()
        return Ended(ended.value.code or 0, *capsys.readouterr())

    return call
