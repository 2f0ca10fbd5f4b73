import sys

import pytest

from facade.cli import main


@pytest.fixture
def facade(monkeypatch, capsys):
    """The command line, in this process: its exit code and what it printed."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["facade", *map(str, arguments)])
        monkeypatch.setattr(sys, "path", list(sys.path))
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code or 0, capsys.readouterr()

    return call
