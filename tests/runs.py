"""What tests do to a run on its way."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from facade import Experiment, run
from facade.errors import StoppedError
from facade.runtimes.recorder import Quiet


class At(Quiet):
    """Does something when a round is over: once, though a run that lost a worker comes by again."""

    def __init__(self, round: int, act: Callable[[], object]) -> None:
        self._round = round
        self._act: Callable[[], object] | None = act

    def round(self, done: int, rounds: int) -> None:
        if done == self._round and self._act is not None:
            act, self._act = self._act, None
            act()


def stop_at(round: int, number: int = signal.SIGINT) -> At:
    """Asks the run to stop, as Ctrl-C does."""
    return At(round, lambda: signal.raise_signal(number))


def stopped(experiment: Experiment, out: Path, after: int, number: int = signal.SIGINT) -> StoppedError:
    """What a run, begun or resumed, says when it is asked to stop after a round."""
    with pytest.raises(StoppedError) as caught:
        run(experiment, out, resume=True, progress=stop_at(after, number))
    return caught.value


def unseal(run: Path) -> None:
    """Make a finished run one of a version before files had checksums."""
    toml, summary = run / "experiment.toml", run / "result.json"
    toml.write_text("".join(line for line in toml.read_text().splitlines(True) if not line.startswith("# sha256")))
    facts = json.loads(summary.read_text())
    summary.write_text(json.dumps({key: value for key, value in facts.items() if key not in ("files", "sha256")}))
