"""Which settings determine a result: what the hash of an experiment covers, and how two experiments differ."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from facade.learning.models import WITHOUT_RUNNING_STATISTICS
from facade.learning.parts import RUNNING_STATISTICS

NOT_DECISIVE: dict[str, set[str] | None] = {
    "name": None,
    "data": {"root"},
    "evaluation": {"measure"},
    "runtime": {"name", "threads", "shards"},
}
"""Sections (None: the whole entry) and keys that do not determine a result."""

ADDED_LATER: dict[str, dict[str, Any]] = {
    "data": {
        "few_nodes": 0,
        "few_rows": 6,
        "label": "",
        "site": "",
        "split": "",
        "group": "",
        "categorical": [],
        "ignore": [],
        "columns": [],
        "scale": "auto",
    },
    "model": {"local": []},
    "topology": {"edges": ""},
    "guard": {"rule": "none"},
    "attack": {"kind": "none", "nodes": [], "start": 0},
    "training": {"loss": "plain"},
    "evaluation": {"prior": "auto", "measure": "accuracy"},
}
"""Fields that were added after experiments had been run, and the values with which they change nothing: with these an
experiment is the one that was run before there was such a field. Defaults may be others."""


def hashed_settings(resolved: Mapping[str, Any]) -> dict[str, Any]:
    """What determines a result, of a resolved experiment as nested dicts: what its hash covers."""
    kept: dict[str, Any] = {}
    for name, value in _without_idle_parts(resolved).items():
        left_out, added = NOT_DECISIVE.get(name, set()), ADDED_LATER.get(name, {})
        if left_out is None:
            continue
        if isinstance(value, Mapping):
            value = {k: v for k, v in value.items() if k not in left_out and (k not in added or v != added[k])}
        if value or name not in ADDED_LATER:  # a whole section may have been added
            kept[name] = value
    return kept


def _without_idle_parts(resolved: Mapping[str, Any]) -> dict[str, Any]:
    """The experiment with nothing local if that is what `model.local` comes to, as by default in a model without
    running statistics. Of a user's own model, nobody can say so before it is made."""
    model = resolved.get("model", {})
    idle = model.get("local") == [RUNNING_STATISTICS] and model.get("name") in WITHOUT_RUNNING_STATISTICS
    return dict(resolved) | ({"model": {**model, "local": []}} if idle else {})


def decisive_settings(resolved: Mapping[str, Any]) -> dict[str, Any]:
    """What determines a result, by `section.key`, of a resolved experiment as nested dicts."""
    flat: dict[str, Any] = {}
    for name, value in hashed_settings(resolved).items():
        flat |= {f"{name}.{key}": v for key, v in value.items()} if isinstance(value, Mapping) else {name: value}
    # As it comes back from a file: tuples are lists, and what is None is not written.
    return {key: json.loads(json.dumps(value)) for key, value in flat.items() if value is not None}


def setting(flat: Mapping[str, Any], key: str) -> Any:
    """The value of `section.key` in a flat description, which leaves out what was added later and changes nothing."""
    section, _, name = key.partition(".")
    return flat.get(key, ADDED_LATER.get(section, {}).get(name, "-"))


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """In words, where two flat descriptions differ."""
    missing = "(not written)"
    keys = [*there, *(key for key in here if key not in there)]
    pairs = [(key, there.get(key, missing), here.get(key, missing)) for key in keys]
    return [f"{key} = {old} there and {new} here" for key, old, new in pairs if old != new]
