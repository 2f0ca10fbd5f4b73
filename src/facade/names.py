"""Names in an experiment: a row of a table, or `package.module:Attribute` for a user's own."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, TypeVar

from facade.errors import ExperimentError, unknown

V = TypeVar("V")


def is_foreign(name: str) -> bool:
    """Whether a name points outside the tables."""
    return ":" in name


def foreign(kind: str, name: str) -> Any:
    """The attribute that `package.module:Attribute` names."""
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        raise ExperimentError(
            f"{kind} '{name}': module '{module}' cannot be imported ({error});"
            " run from the directory that holds it, or install it"
        ) from None
    except AttributeError:
        raise ExperimentError(f"{kind} '{name}': module '{module}' has no '{attribute}'") from None


def look_up(kind: str, name: str, table: Mapping[str, V]) -> V:
    """The row of a table, or an error that suggests the nearest name."""
    if name not in table:
        raise unknown(kind, name, table)
    return table[name]
