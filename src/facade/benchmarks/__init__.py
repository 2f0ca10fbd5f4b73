"""`facade bench`: how fast we are against what the machine can give, as ratios within one run."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def parts(runtime: str, rows: int | None = None) -> dict[str, Callable[[bool], dict[str, Any]]]:
    """The benchmarks of a runtime by name; each is called with `quick`. `rows`: how many those of rows record."""
    if runtime == "ray":
        from facade.benchmarks import cluster

        return {"ray": cluster.run}
    if runtime == "peers":
        from facade.benchmarks import wire

        return {"wire": wire.run}
    from facade.benchmarks import edges, efficiency, evaluation, guarding, large, many_rows, overhead, scaling

    return {
        "efficiency": efficiency.run,
        "scaling": scaling.run,
        "overhead": overhead.run,
        "guard": guarding.run,
        "rows": functools.partial(many_rows.run, rows=rows),
        "large": large.run,
        "evaluation": evaluation.run,
        "edges": edges.run,
    }
