"""The methods that studies compare, by what their tables call them."""

from __future__ import annotations

from typing import Any

METHODS: dict[str, dict[str, Any]] = {
    "alone": {"algorithm.name": "local"},
    "EL": {"algorithm.name": "el"},
    "DePRL": {"algorithm.name": "deprl", "algorithm.core_steps": 10},
    "as published": {"algorithm.name": "facade", "algorithm.seeding": "none"},
    "farthest": {"algorithm.name": "facade", "algorithm.seeding": "farthest"},
    "class-means": {"algorithm.name": "facade", "algorithm.seeding": "class-means"},
    "auto": {"algorithm.name": "facade", "algorithm.seeding": "class-means", "algorithm.heads": "auto"},
}
"""The last four are FACADE, told apart by how its heads start."""


def method(name: str, heads: int) -> dict[str, Any]:
    """The settings of a method, with the number of heads where it has heads and does not find the number itself."""
    settings = dict(METHODS[name])
    if settings["algorithm.name"] == "facade":
        settings.setdefault("algorithm.heads", heads)
    return settings
