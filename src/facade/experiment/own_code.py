"""The code of a user's own model, algorithm, guard, attack, topology or source: a mark by which a change is noticed."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from facade.core.names import is_foreign


def own_code(experiment: Mapping[str, Any]) -> dict[str, str]:
    """The SHA-256 of the source of all code of the user's own that an experiment names, by these names; those whose
    modules were not imported for the run name no code. What such code imports from other packages is not looked at,
    and code without a file, as in a notebook, has no mark."""
    marks = {}
    for name in sorted(set(_texts(experiment))):
        module_name, _, attribute = name.partition(":")
        module = sys.modules.get(module_name)
        if module is not None and hasattr(module, attribute) and _top(module_name) != "facade":
            files = _sources(module)
            if files:
                marks[name] = _sha256(files)
    return marks


def _texts(value: Any) -> Iterator[str]:
    """All texts with a colon in nested tables and lists; keys count too."""
    if isinstance(value, str):
        if is_foreign(value):
            yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts(key)
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


def _top(module: str) -> str:
    return module.partition(".")[0]


def _sources(module: ModuleType) -> dict[str, Path]:
    """The files, by name, that a module's code is in: its own, and all others of the package that it is part of, for
    it may import any of them."""
    top = sys.modules.get(_top(module.__name__), module)
    folders = [Path(folder) for folder in getattr(top, "__path__", [])]
    if folders:
        files = [(folder, path) for folder in folders for path in folder.rglob("*.py") if path.is_file()]
        return {str(path.relative_to(folder)): path for folder, path in files}
    file = getattr(module, "__file__", None)
    return {Path(file).name: Path(file)} if file and Path(file).is_file() else {}


def _sha256(files: Mapping[str, Path]) -> str:
    """Over names and contents."""
    whole = hashlib.sha256()
    for name, path in sorted(files.items()):
        whole.update(f"{name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return whole.hexdigest()
