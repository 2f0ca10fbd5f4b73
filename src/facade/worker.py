"""A process that computes runs for a sweep: one request per line in, one event per line out.

Request: {"path": run directory, "experiment": the resolved experiment}. Events: {"done": rounds} while
a run is under way, then {"ended": "finished"}, {"ended": "failed", "reason": ...} or {"ended":
"stopped"}. Runs are resumed where there is something to resume.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from facade.errors import FacadeError, StoppedError

if TYPE_CHECKING:
    from facade.config import Experiment

Event = dict[str, Any]


def compute(
    experiment: Experiment, path: Path, tell: Callable[[Event], None], run: Callable[..., Any] | None = None
) -> Event:
    """Run or resume one experiment, here or by `run`; how it ended. Whatever goes wrong in it ends this
    run only."""
    from facade.runtimes import local
    from facade.runtimes.recorder import Quiet

    class Teller(Quiet):
        def start(self, experiment: Experiment, done: int) -> None:
            tell({"done": done})

        def round(self, done: int, rounds: int) -> None:
            tell({"done": done})

    try:
        (run or local.run)(experiment, path, resume=True, progress=Teller())
    except StoppedError:
        return {"ended": "stopped"}
    except FacadeError as error:
        return {"ended": "failed", "reason": str(error)}
    except Exception as error:  # a mistake in a user's own algorithm or model
        return {"ended": "failed", "reason": f"{type(error).__name__}: {error}"}
    return {"ended": "finished"}


def serve() -> None:
    """Compute what standard input asks for until it ends or somebody asks to stop."""
    from facade.config import Experiment

    events = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a user's code prints must not mix with the events
    sys.path.insert(0, "")

    def tell(event: Event) -> None:
        events.write(json.dumps(event) + "\n")

    for line in sys.stdin:
        request = json.loads(line)
        end = compute(Experiment.of(request["experiment"]), Path(request["path"]), tell)
        tell(end)
        if end["ended"] == "stopped":
            return


if __name__ == "__main__":
    serve()
