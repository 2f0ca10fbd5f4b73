"""One frozen, validated description of a run: TOML in, resolved TOML out, a stable hash."""

from __future__ import annotations

import datetime
import functools
import hashlib
import json
import tomllib
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Self

import tomli_w
from pydantic import AfterValidator, Field, ValidationError, model_validator

from facade.algorithms import ALGORITHMS
from facade.core.names import is_foreign, look_up
from facade.core.section import Section, sentence
from facade.data.section import DataSection
from facade.errors import DamagedFileError, ExperimentError, unknown
from facade.experiment.algorithm_table import field_names, resolve_algorithm
from facade.experiment.decisive_settings import ADDED_LATER, hashed_settings
from facade.experiment.sections import (
    SECTIONS,
    AttackSection,
    EvaluationSection,
    GuardSection,
    ModelSection,
    NetworkSection,
    RuntimeSection,
    TopologySection,
    TrainingSection,
)
from facade.files import seals

_LONGEST_NAME = 100

PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "artefact": {
        "model": {"local": []},
        "algorithm": {"scoring": "independent", "own_head": "always", "seeding": "none", "two_hop": False},
        "training": {"init": "per-node"},
        "evaluation": {"head": "oracle"},
        "data": {"partition": "shuffled"},
    },
}


def _directory_name(name: str) -> str:
    """A name that a directory may have as it is; ValueError for one that would lead elsewhere."""
    if name.isprintable() and 1 <= len(name) <= _LONGEST_NAME and name[0] != "." and not set(name) & set("/\\"):
        return name
    raise ValueError(
        f"{name!r} cannot be the name of a directory; expected 1 to {_LONGEST_NAME} characters, none of them / or \\,"
        " the first no dot, such as 'ward-7'"
    )


class Experiment(Section):
    """Everything that determines a run. Make one with `Experiment.load` or `Experiment.of`."""

    name: Annotated[str, AfterValidator(_directory_name)]
    """What the runs are called, and their directories: 1 to 100 characters, none of them / or \\, the first no dot; no
    result depends on it."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    """Everything random follows from it."""
    data: DataSection
    model: ModelSection
    algorithm: dict[str, Any]
    topology: TopologySection
    network: NetworkSection
    guard: GuardSection
    attack: AttackSection
    training: TrainingSection
    evaluation: EvaluationSection
    runtime: RuntimeSection

    @model_validator(mode="after")
    def _prior_is_needed(self) -> Self:
        if self.evaluation.prior != "auto" and self.training.loss == "plain":
            raise ValueError(
                f"evaluation.prior = '{self.evaluation.prior}' needs training.loss = 'balanced'; with 'plain', models"
                " learn how frequent labels are, and nothing is added to their outputs: leave prior out"
            )
        return self

    @classmethod
    def load(cls, path: str | Path, settings: Iterable[str] = (), preset: str | None = None) -> Self:
        """An experiment from a TOML file, with `section.key=value` settings on top."""
        path = Path(path)
        try:
            content = path.read_bytes()
            _warn_of_damage(path, content)
            written = tomllib.loads(content.decode())
        except (OSError, UnicodeDecodeError) as error:
            raise ExperimentError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
        except tomllib.TOMLDecodeError as error:
            raise ExperimentError(f"{path} is not valid TOML: {error}") from None
        return cls.of({"name": path.stem} | written, settings, preset)

    @classmethod
    def of(cls, written: Mapping[str, Any], settings: Iterable[str] = (), preset: str | None = None) -> Self:
        """An experiment from nested dicts: written keys, then preset, per-algorithm overrides and
        settings, each over the one before."""
        chosen, written = parse_settings(settings), _of_its_time(written)
        _check_tables(written)
        _check_tables(chosen)
        named = written.get("algorithm", {}).get("name", "facade")
        name = chosen.get("algorithm", {}).get("name", named)
        for given in (named, name):
            if not isinstance(given, str):
                raise ExperimentError(f"algorithm.name = {given!r} is not a name")
        if name != named:
            written = _without_defaults(written, named)
        base = merge(written, look_up("preset", preset, PRESETS) if preset else {})
        overrides = merge(base.pop("override", {}), chosen.pop("override", {}))
        base = merge(merge(base, overrides.get(name, {})), chosen)
        return cls._validated(merge(_implied(name), base), named)

    @classmethod
    def _validated(cls, full: dict[str, Any], named: str) -> Self:
        """`named`: the algorithm that the file is written for."""
        for key in full:
            if key not in ("name", "seed", "algorithm", *SECTIONS):
                raise unknown("key", key, ["name", "seed", "algorithm", "override", *SECTIONS])
        full = {"name": "experiment", **{section: {} for section in SECTIONS}, **full}
        full["algorithm"] = resolve_algorithm(full.get("algorithm", {}), named)
        try:
            return cls.model_validate(full)
        except ValidationError as error:
            raise ExperimentError(sentence(error, SECTIONS)) from None

    def with_(self, *settings: str) -> Self:
        """The same experiment with `section.key=value` settings on top."""
        return type(self).of(self.model_dump(), settings)

    @property
    def n(self) -> int:
        """Number of nodes; 0 where only the data know it (data.clusters = "unknown")."""
        return sum(self.data.sizes)

    def toml(self) -> str:
        """The resolved experiment: every field written out, nothing left to defaults."""
        written = self.model_dump()
        written["algorithm"] = {k: v for k, v in self.algorithm.items() if v is not None}  # which TOML cannot say
        return tomli_w.dumps(written)

    @functools.cached_property
    def hash(self) -> str:
        """SHA-256 of what determines the result: not the name, where data lie, or how many threads
        and shards compute it."""
        return hashlib.sha256(json.dumps(hashed_settings(self.model_dump()), sort_keys=True).encode()).hexdigest()


def _warn_of_damage(path: Path, content: bytes) -> None:
    """Warn of a file that a run wrote and that was changed since: users may do so, disks must not."""
    try:
        remedy = "if it was changed on purpose, remove its last line; otherwise restore it from a copy"
        seals.check_text(path, content, remedy)
    except DamagedFileError as damage:
        warnings.warn(str(damage), stacklevel=3)


def parse_settings(settings: Iterable[str]) -> dict[str, Any]:
    """`section.key=value` strings as nested dicts; values as in TOML, bare words as strings."""
    parsed: dict[str, Any] = {}
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals or not path:
            raise ExperimentError(f"setting '{setting}': expected section.key=value, such as training.lr=0.01")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text
        if isinstance(value, datetime.date | datetime.time):  # no setting is one: 10:10:10 are clusters
            value = text
        for key in reversed(path.strip().split(".")):
            value = {key: value}
        parsed = merge(parsed, value)
    return parsed


def merge(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `top` over it, table by table."""
    merged = dict(base)
    for key, value in top.items():
        below = merged.get(key)
        merged[key] = merge(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged


def _check_tables(written: Mapping[str, Any]) -> None:
    """Refuse what is no table where one is expected, and overrides that could never apply."""
    overrides = written.get("override", {})
    tables = {"algorithm": written.get("algorithm", {}), "override": overrides}
    if isinstance(overrides, Mapping):
        tables |= {f"override.{name}": sections for name, sections in overrides.items()}
    for key, table in tables.items():
        if not isinstance(table, Mapping):
            raise ExperimentError(f"{key} = {table!r} is not possible: expected a table, such as algorithm.name = 'el'")
    for name, sections in overrides.items():
        if name not in ALGORITHMS and not is_foreign(name):
            raise unknown("key", f"override.{name}", [f"override.{known}" for known in ALGORITHMS])
        for key, table in sections.items():
            _check_override(name, key, table)


def _check_override(name: str, section: str, table: Any) -> None:
    """Refuse a section of an algorithm's overrides that could not be applied, though nobody asks for it yet."""
    prefix = f"override.{name}"
    if section not in (sections := ("algorithm", *SECTIONS)):
        raise unknown("key", f"{prefix}.{section}", [f"{prefix}.{each}" for each in sections])
    if not isinstance(table, Mapping):
        raise ExperimentError(f"{prefix}.{section} = {table!r} is not possible: expected a table")
    if section in SECTIONS:
        fields = set(SECTIONS[section].model_fields)
    elif name in ALGORITHMS:
        fields = field_names(ALGORITHMS[name].algorithm)
    else:
        return  # whose code is imported only when it is used
    for key in table:
        if key not in fields:
            raise unknown("key", f"{prefix}.{section}.{key}", [f"{prefix}.{section}.{field}" for field in fields])


def _implied(name: str) -> dict[str, dict[str, Any]]:
    """What the name of an algorithm implies elsewhere in an experiment."""
    return ALGORITHMS[name].implies if name in ALGORITHMS else {}


def _of_its_time(written: Mapping[str, Any]) -> dict[str, Any]:
    """A resolved experiment, which says everything, with the fields that are younger than it: they have the values
    with which they change nothing, not their defaults. A file that leaves anything else out was written by somebody
    who leaves it to the defaults of today."""
    tables = merge(ADDED_LATER, {key: table for key, table in written.items() if isinstance(table, Mapping)})
    resolved = all(tables.get(section, {}).keys() >= model.model_fields.keys() for section, model in SECTIONS.items())
    return dict(written) | tables if resolved else dict(written)


def _without_defaults(written: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A file of one algorithm, made fit for another. The experiment.toml of a run says everything, also what nobody
    chose: there, values that are the defaults of the named algorithm are left to those of the other one. A file that
    leaves anything out was written by somebody who means what it says."""
    if name not in ALGORITHMS:
        return dict(written)
    implied = _implied(name)
    defaults = merge({section: model.model_construct().model_dump() for section, model in SECTIONS.items()}, implied)
    defaults["algorithm"] = resolve_algorithm(implied.get("algorithm", {}) | {"name": name})
    tables = {section: table for section, table in written.items() if isinstance(table, Mapping)}
    if any(key not in tables.get(section, {}) for section, values in defaults.items() for key in values):
        return dict(written)
    return dict(written) | {
        section: {k: v for k, v in tables[section].items() if k not in values or v != values[k]}
        for section, values in defaults.items()
    }
