"""One thread per process, the command line in this process, and finished runs."""

import os
import sys
from typing import NamedTuple

import hypothesis
import pytest
import torch

# What a console prints must not depend on the shell that started the tests; it looks when it is imported.
os.environ.pop("FORCE_COLOR", None)
os.environ.pop("NO_COLOR", None)
os.environ.pop("COLUMNS", None)

from experiments import digits
from facade import run
from facade.cli import main

torch.set_num_threads(1)
# The same examples in every run, and no clock: a slow machine fails no test.
hypothesis.settings.register_profile("facade", derandomize=True, deadline=None, database=None, max_examples=60)
hypothesis.settings.load_profile("facade")


class Ended(NamedTuple):
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str


def pytest_addoption(parser):
    parser.addoption("--kill-runs", type=int, default=2, help="runs in which a peer is killed ten times")


def pytest_generate_tests(metafunc):
    if "kill_seed" in metafunc.fixturenames:
        metafunc.parametrize("kill_seed", range(1, metafunc.config.getoption("--kill-runs") + 1))


@pytest.fixture
def command(monkeypatch, capsys):
    """The command line, in this process."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["facade", *map(str, arguments)])
        monkeypatch.setattr(sys, "path", list(sys.path))
        with pytest.raises(SystemExit) as ended:
            main()
        return Ended(ended.value.code or 0, *capsys.readouterr())

    return call


@pytest.fixture(scope="session")
def digits_runs(tmp_path_factory):
    """A directory with finished runs of three algorithms, two seeds each: ALGORITHM-SEED."""
    base = tmp_path_factory.mktemp("runs")
    for algorithm in ("facade", "el", "local"):
        for seed in (1, 2):
            settings = (f"algorithm.name={algorithm}", f"seed={seed}", "training.lr=0.1")
            experiment = digits(*settings, clusters="3:1", degree=2, rounds=20, steps=5, every=10)
            run(experiment, base / f"{algorithm}-{seed}")
    return base
