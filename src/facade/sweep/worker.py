"""A process that computes runs for a sweep: one request per line in, one event per line out.

Request: {"path": run directory, "experiment": the resolved experiment}. Events: {"done": rounds} while
a run is under way, with "values" (one per cluster, or, where these are not known, the mean and the worst of sites,
by the measure that counts) when it was tested, then {"ended": "finished"}, {"ended": "failed", "reason": ...},
{"ended": "stopped"}, or {"ended": "busy", "reason": ...} where another process is computing the run. Runs are resumed
where there is something to resume.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from facade.analysis.measures import MEASURES
from facade.errors import FacadeError, StoppedError, StorageError
from facade.experiment.config import Experiment
from facade.files import store
from facade.runs.measure_facts import few_values
from facade.runs.run_directory import BusyError
from facade.runtimes import local
from facade.runtimes.recorder import Quiet

Event = dict[str, Any]


def compute(experiment: Experiment, path: Path, on_event: Callable[[Event], None], run: Callable[..., Any]) -> Event:
    """Run or resume one experiment by `run`; how it ended. Whatever goes wrong in it ends this run only. Where
    a user's own code failed is written to NAME-failure.txt beside the run directory."""

    class EventProgress(Quiet):
        def start(self, experiment: Experiment, done: int) -> None:
            self.by = MEASURES[experiment.evaluation.measure]
            on_event({"done": done})

        def round(self, done: int, rounds: int) -> None:
            on_event({"done": done})

        def evaluated(self, done: int, judged: Event, final: bool) -> None:
            if not final:
                on_event({"done": done, "values": few_values(judged["measured"], self.by)})

    failure = path.with_name(f"{path.name}-failure.txt")
    with contextlib.suppress(OSError):
        failure.unlink()  # of an earlier attempt
    try:
        run(experiment, path, resume=True, progress=EventProgress())
    except StoppedError:
        return {"ended": "stopped"}
    except BusyError as error:
        return {"ended": "busy", "reason": str(error)}
    except FacadeError as error:
        return {"ended": "failed", "reason": str(error)}
    except Exception as error:  # a mistake in a user's own algorithm or model
        return {"ended": "failed", "reason": _written(error, failure)}
    return {"ended": "finished"}


def _written(error: Exception, file: Path) -> str:
    """What went wrong, in a line, and the file that says where."""
    raised = getattr(error, "cause", None) or error  # Ray wraps what was raised in a worker
    summary = f"{type(raised).__name__}: {raised}".splitlines()[0]
    try:
        store.replace(file, "".join(traceback.format_exception(error)).encode(), store.PRIVATE)
    except StorageError as complaint:
        return f"{summary}; {complaint}"
    return f"{summary}; {file} says where"


def serve() -> None:
    """Compute what standard input asks for until it ends or somebody asks to stop."""
    events = os.dup(1)
    os.dup2(2, 1)  # whatever a user's code prints must not mix with the events
    sys.path.append("")

    def report(event: Event) -> None:
        try:
            os.write(events, json.dumps(event).encode() + b"\n")
        except BrokenPipeError:  # the sweep is gone: its run is stopped as if somebody had asked for it
            os.kill(os.getpid(), signal.SIGTERM)

    for line in sys.stdin:
        request = json.loads(line)
        end = compute(Experiment.of(request["experiment"]), Path(request["path"]), report, local.run)
        report(end)
        if end["ended"] == "stopped":
            return


if __name__ == "__main__":
    serve()
