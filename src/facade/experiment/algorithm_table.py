"""The [algorithm] table of an experiment: from its name to a class, from its keys to fields."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import json
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from facade.algorithms import ALGORITHMS
from facade.core.algorithm import Algorithm
from facade.core.names import foreign, is_foreign, look_up
from facade.core.section import sentence
from facade.errors import ExperimentError, unknown
from facade.experiment.sections import SECTIONS


def algorithm_class(name: str) -> type[Algorithm[Any]]:
    """The class behind `algorithm.name`."""
    if not is_foreign(name):
        return look_up("algorithm", name, ALGORITHMS).algorithm
    attribute = foreign("algorithm", name)
    if not (isinstance(attribute, type) and issubclass(attribute, Algorithm) and dataclasses.is_dataclass(attribute)):
        raise ExperimentError(f"algorithm '{name}' is not a dataclass derived from facade.Algorithm")
    if inspect.get_annotations(attribute) and "__dataclass_fields__" not in vars(attribute):
        raise ExperimentError(
            f"algorithm '{name}' names fields that nobody could set; write @dataclass(frozen=True) above its class"
        )
    return attribute


def field_names(algorithm: type[Algorithm[Any]]) -> set[str]:
    """The keys that an algorithm has in its table, besides its name."""
    return {field.name for field in dataclasses.fields(algorithm)}


def resolve_algorithm(written: Mapping[str, Any], also: str = "facade") -> dict[str, Any]:
    """The [algorithm] table with all fields of the named algorithm and no others. Fields of other
    known algorithms, and of `also`, are dropped, so one file serves a whole comparison; a key nobody knows is not."""
    fields = dict(written)
    name = fields.pop("name", "facade")
    own = field_names(algorithm_class(name))
    others = [row.algorithm for row in ALGORITHMS.values()]
    with contextlib.suppress(ExperimentError):  # it may not be here, and is not needed
        others.append(algorithm_class(also))
    known = own.union(*map(field_names, others))
    for key in fields:
        if key not in known:
            raise unknown("key", f"algorithm.{key}", [f"algorithm.{k}" for k in ("name", *known)])
    algorithm = build_algorithm({"name": name} | {k: v for k, v in fields.items() if k in own})
    return {"name": name} | dataclasses.asdict(algorithm)


def build_algorithm(resolved: Mapping[str, Any]) -> Algorithm[Any]:
    """The algorithm that an [algorithm] table describes."""
    fields = {k: v for k, v in resolved.items() if k != "name"}
    try:
        adapter = TypeAdapter(algorithm_class(resolved["name"]))
        # As JSON, whose types are those of TOML: strict about numbers, while a list may still become a tuple.
        return adapter.validate_json(json.dumps(fields, default=str), strict=True)
    except ValidationError as error:
        raise ExperimentError(sentence(error, SECTIONS, "algorithm.")) from None
