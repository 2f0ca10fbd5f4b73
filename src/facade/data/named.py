"""Functions by name: a row of a table, or a user's own `package.module:function`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from facade.core.names import foreign, is_foreign, look_up
from facade.errors import ExperimentError

F = TypeVar("F", bound=Callable[..., Any])


def named(kind: str, name: str, table: Mapping[str, F]) -> F:
    """The function that an experiment names; `kind` says in refusals what it is."""
    if not is_foreign(name):
        return look_up(kind, name, table)
    function = foreign(kind, name)
    if not callable(function):
        raise ExperimentError(f"{kind} '{name}' is not a function")
    return function  # type: ignore[no-any-return]
