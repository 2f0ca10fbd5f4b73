"""`facade list`: everything that has a name."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from rich.console import Console
from rich.table import Table

from facade.names import look_up

Line = tuple[str, str, str]


def _first_line(documented: Any) -> str:
    return (documented.__doc__ or "").strip().splitlines()[0]


def _fields(cls: Any, implied: Mapping[str, Any] = MappingProxyType({})) -> str:
    return ", ".join(f"{f.name} = {_shown(implied.get(f.name, f.default))}" for f in dataclasses.fields(cls))


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')


def _algorithms() -> Iterator[Line]:
    from facade.algorithms import ALGORITHMS

    for name, entry in ALGORITHMS.items():
        yield name, entry.says, _fields(entry.algorithm, entry.implies.get("algorithm", {}))


def _datasets() -> Iterator[Line]:
    from facade.data.sources import SOURCES

    for name, source in SOURCES.items():
        yield name, _first_line(source), ""


def _skews() -> Iterator[Line]:
    from facade.data.skews import SKEWS

    for name, skew in SKEWS.items():
        yield name, _first_line(skew), ""


def _partitions() -> Iterator[Line]:
    from facade.data.partition import PARTITIONS

    for name, partition in PARTITIONS.items():
        yield name, _first_line(partition), ""


def _models() -> Iterator[Line]:
    from facade.models import MODELS

    for name, model in MODELS.items():
        yield name, _first_line(model), ""


def _topologies() -> Iterator[Line]:
    from facade.topology import TOPOLOGIES

    for name, topology in TOPOLOGIES.items():
        yield name, _first_line(topology), _fields(topology)


def _metrics() -> Iterator[Line]:
    from facade.metrics import METRICS

    for name, says in METRICS.items():
        yield name, says, ""


LISTS = {
    "algorithms": _algorithms,
    "datasets": _datasets,
    "skews": _skews,
    "partitions": _partitions,
    "models": _models,
    "topologies": _topologies,
    "metrics": _metrics,
}


def show(console: Console, what: str | None) -> None:
    """Print one list, or all of them."""
    wanted = {what: look_up("list", what, LISTS)} if what else LISTS
    for title, lines in wanted.items():
        table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
        rows = list(lines())
        for heading in ("name", "what it is", *(["fields and defaults"] if any(r[2] for r in rows) else [])):
            table.add_column(heading, header_style="dim", overflow="fold")
        for row in rows:
            table.add_row(*row[: len(table.columns)])
        console.print(table)
        console.print()
