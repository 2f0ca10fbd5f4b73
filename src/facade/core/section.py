"""A table of an experiment's TOML file, and what is wrong with one, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from facade.errors import unknown

Positive = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Finite = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Section(BaseModel):
    """A table of the TOML file. Values are of the type that a field has: true is no number, and "20" neither."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def sentence(error: ValidationError, sections: Mapping[str, type[Section]], prefix: str = "") -> str:
    """What is wrong with an experiment, in one sentence per mistake; a value that could be of several kinds and is
    of none of them is one mistake."""
    whats: dict[str, str] = {}
    whys: dict[str, dict[str, None]] = {}
    for mistake in error.errors():
        key, what, why = _mistake(mistake, sections, prefix)
        whats.setdefault(key, what)
        whys.setdefault(key, {})[why] = None
    return "; ".join(what + ", or ".join(whys[key]) for key, what in whats.items())


def _mistake(error: Any, sections: Mapping[str, type[Section]], prefix: str) -> tuple[str, str, str]:
    """The key, what is wrong with it, and why where that is not said by it."""
    below = not prefix and error["loc"][:1] and error["loc"][0] in sections
    depth = 2 if below else 1  # what comes after a field are kinds and places of values
    path = [str(part) for part in error["loc"][:depth]]
    key = prefix + ".".join(path)
    if error["type"] == "extra_forbidden":
        section = sections.get(path[0])
        known = [f"{path[0]}.{k}" for k in section.model_fields] if section else list(sections)
        return key, str(unknown("key", key, known)), ""
    if error["type"] == "missing":
        return key, f"{key} is required", ""
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "value_error":
        return key, f"{prefix.rstrip('.') or '.'.join(path)}: {message}".lstrip(": "), ""
    given = error["input"]
    return key, f"{key} = {_as_written(given)} is not possible: ", f"{message[0].lower()}{message[1:]}"


def _as_written(given: Any) -> str:
    """A value as people write it."""
    if isinstance(given, bool):
        return str(given).lower()
    return "NaN" if isinstance(given, float) and math.isnan(given) else repr(given)
