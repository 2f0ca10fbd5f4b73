"""Names in an experiment: a row of a table, or `package.module:Attribute` for a user's own."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from facade.errors import ExperimentError, unknown

V = TypeVar("V")


def is_foreign(name: str) -> bool:
    """Whether a name points outside the tables."""
    return ":" in name


def short(name: str) -> str:
    """A name without the module it points into."""
    return name.rpartition(":")[2]


def short_ones(names: Iterable[str]) -> dict[str, str]:
    """What to call each of some names: short, but for those that would then be called alike."""
    whole = list(dict.fromkeys(names))
    called = [short(name) for name in whole]
    return {name: one if called.count(one) == 1 else name for name, one in zip(whole, called, strict=True)}


def foreign(kind: str, name: str) -> Any:
    """The attribute that `package.module:Attribute` names."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise ExperimentError(f"{kind} '{name}' is no name; expected package.module:Attribute")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        absent = error.name is None or f"{module}.".startswith(f"{error.name}.")
        remedy = "run from the directory that holds it, or install it" if absent else "install what it needs"
        raise ExperimentError(f"{kind} '{name}': module '{module}' cannot be imported ({error}); {remedy}") from None
    except AttributeError as error:
        if attribute in str(error):
            raise ExperimentError(f"{kind} '{name}': module '{module}' has no '{attribute}'") from None
        raise _fails(kind, name, error) from error
    except Exception as error:  # whatever a user's module does when it is imported
        raise _fails(kind, name, error) from error


def _fails(kind: str, name: str, error: Exception) -> ExperimentError:
    return ExperimentError(
        f"{kind} '{name}': its module fails when it is imported ({type(error).__name__}: {error});"
        " `facade --debug ...` shows where"
    )


def look_up(kind: str, name: str, table: Mapping[str, V]) -> V:
    """The row of a table, or an error that suggests the nearest name."""
    if name not in table:
        raise unknown(kind, name, table)
    return table[name]
