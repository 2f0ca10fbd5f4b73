"""What the nodes of a federation are called where they are sites."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from facade.data.errors import DataError


def site_names(sites: Sequence[str] | None, nodes: Iterable[int]) -> list[str]:
    """The names of these nodes; by their numbers where they have none."""
    return [f"node {node}" if sites is None else sites[node] for node in nodes]


def checked_names(names: Sequence[str], n: int) -> list[str]:
    """One name for each of n nodes; DataError where they are not, or are not different."""
    given = list(names)
    if len(given) != n:
        raise DataError(f"names has {len(given)} names but there are {n} nodes; give one name per node")
    for name in given:
        if not isinstance(name, str) or not name.strip():
            raise DataError(f"names has {name!r}; expected a text for every node")
    if twice := sorted({name for name in given if given.count(name) > 1}):
        raise DataError(f"names has {twice[0]!r} more than once; give every node a name of its own")
    return given
