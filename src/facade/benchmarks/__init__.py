"""`facade bench`: how fast we are against what the machine can give, as ratios within one run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def parts() -> dict[str, Callable[[bool], dict[str, Any]]]:
    """The benchmarks by name; each is called with `quick`."""
    from facade.benchmarks import efficiency, overhead, scaling

    return {"efficiency": efficiency.run, "scaling": scaling.run, "overhead": overhead.run}
