"""A graph of one's own, from a text file."""

from __future__ import annotations

from pathlib import Path

from facade.errors import ExperimentError


def edges_in(file: str) -> str:
    """The edges in a text file, one "a b" pair of node numbers a line, # for comments; as topology.edges takes them."""
    try:
        lines = Path(file).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ExperimentError(
            f"topology.file = '{file}' cannot be read ({getattr(error, 'strerror', None) or 'it is not text'});"
            " give a text file with one 'a b' pair of node numbers a line"
        ) from None
    edges = []
    for number, line in enumerate(lines, 1):
        parts = line.split("#")[0].split()
        if not parts:
            continue
        if len({int(part) for part in parts if part.isdecimal()}) != len(parts) or len(parts) != 2:
            raise ExperimentError(
                f"{file}, line {number}: '{line.strip()}' is not an edge; expected two different node numbers"
            )
        edges.append("-".join(parts))
    if not edges:
        raise ExperimentError(f"topology.file = '{file}' has no edges; expected one 'a b' pair of node numbers a line")
    return " ".join(edges)
