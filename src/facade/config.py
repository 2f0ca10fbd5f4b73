"""One frozen, validated description of a run: TOML in, resolved TOML out, a stable hash."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import hashlib
import inspect
import json
import math
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from facade.clusters import cluster_sizes
from facade.errors import ExperimentError, unknown
from facade.names import foreign, is_foreign, look_up
from facade.topology import edges_in

Positive = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Finite = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Section(BaseModel):
    """A table of the TOML file."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False)


class Data(Section):
    """Where the data come from and how they are divided."""

    source: str
    """Where images and labels come from: `facade list datasets`, or package.module:function."""
    clusters: Annotated[str, Field(coerce_numbers_to_str=True)]
    """Nodes per cluster, e.g. "30:2"; of one cluster, 32 or "32"."""
    skew: str = "rotate"
    """How clusters differ: `facade list skews`, several joined by "+", or package.module:function."""
    partition: str = "stratified"
    """How images are divided among nodes: `facade list partitions`, or package.module:function."""
    per_class: Positive = 4
    """Images per class and node, for partition "sampled"."""
    alpha: Finite = 0.5
    """How alike nodes are, for partition "dirichlet": the smaller, the less."""
    shards_per_node: Positive = 2
    """Pieces a node is dealt, for partition "shards"."""
    groups: list[list[int]] = []
    """Classes of each cluster, for skew "labels"."""
    severity: Finite = 1.0
    """Strength of the skews blur, contrast, brightness and noise."""
    validation: Fraction = 0.0
    """Share of the training images kept back for validation."""
    test_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Share of every class held out for testing, where a source has no test split of its own."""
    root: str = "data"
    """Directory that holds all data sets."""
    path: str = ""
    """Folder or file below root, for the sources "folder" and "npz"."""
    size: Positive = 64
    """Height and width in pixels, for folders of images."""
    channels: Literal["auto", 1, 3] = "auto"
    """Gray or RGB, for folders of images; "auto": RGB unless all images are gray."""

    @property
    def sizes(self) -> list[int]:
        """Nodes per cluster."""
        return cluster_sizes(self.clusters)

    @model_validator(mode="after")
    def _clusters_make_sense(self) -> Self:
        parts = self.clusters.split(":")
        if not all(part.isdecimal() and int(part) > 0 for part in parts):
            raise ValueError(f"clusters = '{self.clusters}' makes no sense; expected nodes per cluster, such as '30:2'")
        return self


class Model(Section):
    """The architecture."""

    name: str = "mlp"
    """`facade list models`, or package.module:Class."""
    head: str | Annotated[list[str], Field(min_length=1)] = "head"
    """Name of the submodule (or of several) that is the head; "*": the whole model."""


class Topology(Section):
    """Who hears whom."""

    name: str = "regular"
    """`facade list topologies`, or package.module:Class."""
    degree: int = 4
    """Peers a node hears in a round, for topologies that have one."""
    fresh: Literal["auto"] | bool = "auto"
    """Whether there is a new graph every round; "auto": as the algorithm is described."""
    file: str = ""
    """A text file of edges, for name "file"; read once, it becomes the name "edges" and the edges."""
    edges: str = ""
    """Pairs of nodes that hear each other, such as "0-1 1-2", for name "edges"."""

    @model_validator(mode="before")
    @classmethod
    def _read(cls, written: Any) -> Any:
        """Put a file's content in its place, so that hash, signature and every machine have the same graph."""
        if not isinstance(written, Mapping) or written.get("name") != "file":
            return written
        return {**written, "name": "edges", "edges": edges_in(str(written.get("file", ""))), "file": ""}


class Network(Section):
    """Simulated trouble."""

    loss: Fraction = 0.0
    """Share of messages that do not arrive."""
    offline: Fraction = 0.0
    """Share of nodes that miss a round."""


class Training(Section):
    """How nodes train."""

    rounds: Positive = 200
    """How often nodes train and exchange."""
    steps: Positive = 10
    """Batches a node trains on in a round."""
    batch: Positive = 8
    """Samples in a batch."""
    lr: Finite = 0.05
    """Learning rate."""
    optimiser: Literal["sgd", "adam"] = "sgd"
    """What turns gradients into steps; what it remembers stays with the node."""
    momentum: Fraction = 0.0
    """Of optimiser "sgd"."""
    nesterov: bool = False
    """Whether momentum looks ahead."""
    weight_decay: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """Added to gradients, times the weights."""
    schedule: Literal["constant", "cosine", "step"] = "constant"
    """How the learning rate changes over rounds."""
    schedule_every: Positive = 100
    """Rounds between two drops of the learning rate, for schedule "step"."""
    schedule_factor: Finite = 0.1
    """What a drop multiplies the learning rate by."""
    init: Literal["common", "per-node"] = "common"
    """Whether all nodes begin with the same weights."""

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov = true needs momentum; set training.momentum, such as 0.9")
        if self.optimiser == "adam" and self.momentum:
            raise ValueError("momentum belongs to optimiser 'sgd'; drop it or drop optimiser = 'adam'")
        return self


class Evaluation(Section):
    """When nodes are tested, and with which head."""

    every: Positive = 20
    """Rounds between two tests."""
    head: Literal["chosen", "oracle"] = "chosen"
    """The head a node is tested with: the one it chose, or the one best on the test data (never honest)."""
    images: Annotated[int, Field(ge=0)] = 0
    """Of every test set, that many images, evenly spaced; 0: all of them."""


class Runtime(Section):
    """Where and how the run is computed."""

    name: Literal["local", "ray"] = "local"
    """On this machine, or on a Ray cluster."""
    threads: Annotated[int, Field(ge=0)] = 0
    """Threads that compute; 0: as many as there are cores."""
    shards: Annotated[int, Field(ge=0)] = 0
    """Parts that the nodes are divided into; 0: one, on Ray one per machine."""
    executor: Literal["auto", "stacked", "looped"] = "auto"
    """How nodes are computed: many small models at once, or one by one; "auto": by the model's size."""
    dtype: Literal["float32", "float64"] = "float32"
    """Type of weights."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """bf16: layers compute in bfloat16, weights and averages stay as dtype says."""
    device: str = "cpu"
    """Where layers are computed, as torch names it; nodes' states stay in main memory."""


SECTIONS: dict[str, type[Section]] = {
    "data": Data,
    "model": Model,
    "topology": Topology,
    "network": Network,
    "training": Training,
    "evaluation": Evaluation,
    "runtime": Runtime,
}

PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "artefact": {
        "algorithm": {"scoring": "independent", "own_head": "always", "seeding": "none", "two_hop": False},
        "training": {"init": "per-node"},
        "evaluation": {"head": "oracle"},
        "data": {"partition": "shuffled"},
    },
}

NOT_HASHED: dict[str, set[str] | None] = {
    "name": None,
    "data": {"root"},
    "runtime": {"name", "threads", "shards"},
}
"""Sections (None: the whole entry) and keys that do not determine a result."""

YOUNG: dict[str, dict[str, Any]] = {"topology": {"edges": ""}}
"""Fields that older experiments do not have, and the values with which they change nothing: these are not hashed."""


class Experiment(Section):
    """Everything that determines a run. Make one with `Experiment.load` or `Experiment.of`."""

    name: str
    """What the runs are called; no result depends on it."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    """Everything random follows from it."""
    data: Data
    model: Model
    algorithm: dict[str, Any]
    topology: Topology
    network: Network
    training: Training
    evaluation: Evaluation
    runtime: Runtime

    @classmethod
    def load(cls, path: str | Path, settings: Iterable[str] = (), preset: str | None = None) -> Self:
        """An experiment from a TOML file, with `section.key=value` settings on top."""
        path = Path(path)
        try:
            written = tomllib.loads(path.read_text())
        except (OSError, UnicodeDecodeError) as error:
            raise ExperimentError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
        except tomllib.TOMLDecodeError as error:
            raise ExperimentError(f"{path} is not valid TOML: {error}") from None
        return cls.of({"name": path.stem} | written, settings, preset)

    @classmethod
    def of(cls, written: Mapping[str, Any], settings: Iterable[str] = (), preset: str | None = None) -> Self:
        """An experiment from nested dicts: written keys, then preset, per-algorithm overrides and
        settings, each over the one before."""
        chosen = parse_settings(settings)
        _check_tables(written)
        _check_tables(chosen)
        named = written.get("algorithm", {}).get("name", "facade")
        name = chosen.get("algorithm", {}).get("name", named)
        if not isinstance(name, str):
            raise ExperimentError(f"algorithm.name = {name!r} is not a name")
        if name != named and _is_resolved(written):
            written = _without_defaults_of(named, name, written)
        base = merge(written, look_up("preset", preset, PRESETS) if preset else {})
        overrides = merge(base.pop("override", {}), chosen.pop("override", {}))
        base = merge(merge(base, overrides.get(name, {})), chosen)
        return cls._validated(merge(_implied(name), base), named if isinstance(named, str) else name)

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
            raise ExperimentError(_sentence(error)) from None

    def with_(self, *settings: str) -> Self:
        """The same experiment with `section.key=value` settings on top."""
        return type(self).of(self.model_dump(), settings)

    @property
    def n(self) -> int:
        """Number of nodes."""
        return sum(self.data.sizes)

    def toml(self) -> str:
        """The resolved experiment: every field written out, nothing left to defaults."""
        return tomli_w.dumps(self.model_dump())

    @functools.cached_property
    def hash(self) -> str:
        """SHA-256 of what determines the result: not the name, where data lie, or how many threads
        and shards compute it."""
        return hashlib.sha256(json.dumps(hashed(self.model_dump()), sort_keys=True).encode()).hexdigest()


def hashed(resolved: Mapping[str, Any]) -> dict[str, Any]:
    """What determines a result, of a resolved experiment as nested dicts: what its hash covers."""
    kept: dict[str, Any] = {}
    for name, value in resolved.items():
        left_out, young = NOT_HASHED.get(name, set()), YOUNG.get(name, {})
        if left_out is None:
            continue
        if isinstance(value, Mapping):
            value = {k: v for k, v in value.items() if k not in left_out and (k not in young or v != young[k])}
        kept[name] = value
    return kept


def parse_settings(settings: Iterable[str]) -> dict[str, Any]:
    """`section.key=value` strings as nested dicts; values as in TOML, bare words as strings."""
    parsed: dict[str, Any] = {}
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals or not path:
            raise ExperimentError(f"--set {setting}: expected section.key=value, such as training.lr=0.01")
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
    from facade.algorithms import ALGORITHMS

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
    from facade.algorithms import ALGORITHMS

    prefix = f"override.{name}"
    if section not in (known := ("algorithm", *SECTIONS)):
        raise unknown("key", f"{prefix}.{section}", [f"{prefix}.{each}" for each in known])
    if not isinstance(table, Mapping):
        raise ExperimentError(f"{prefix}.{section} = {table!r} is not possible: expected a table")
    if section in SECTIONS:
        fields = set(SECTIONS[section].model_fields)
    elif name in ALGORITHMS:
        fields = {field.name for field in dataclasses.fields(ALGORITHMS[name].algorithm)}
    else:
        return  # whose code is imported only when it is used
    for key in table:
        if key not in fields:
            raise unknown("key", f"{prefix}.{section}.{key}", [f"{prefix}.{section}.{field}" for field in fields])


def _implied(name: Any) -> dict[str, Any]:
    from facade.algorithms import ALGORITHMS

    entry = ALGORITHMS.get(name) if isinstance(name, str) else None
    return {} if entry is None else entry.implies


def _is_resolved(written: Mapping[str, Any]) -> bool:
    """Whether nothing is left to defaults, as in the experiment.toml of a run."""
    from facade.algorithms import ALGORITHMS

    algorithm = written.get("algorithm", {})
    entry = ALGORITHMS.get(algorithm.get("name", ""))
    tables = {section: model.model_fields for section, model in SECTIONS.items()}
    return (
        entry is not None
        and all(field.name in algorithm for field in dataclasses.fields(entry.algorithm))
        and all(isinstance(written.get(section), Mapping) for section in tables)
        and all(key in written[section] for section, keys in tables.items() for key in keys)
    )


def _without_defaults_of(named: str, other: str, resolved: Mapping[str, Any]) -> dict[str, Any]:
    """A resolved experiment of one algorithm, made fit for another: what it says only because the first has it
    so by default is not said of the second."""
    own, sections = _implied(named), {name: model.model_construct().model_dump() for name, model in SECTIONS.items()}
    algorithm = resolve_algorithm(own.get("algorithm", {}) | {"name": named})
    defaults = merge(sections, own) | {"algorithm": algorithm}
    depends = merge(own, _implied(other)) | {"algorithm": algorithm}
    return dict(resolved) | {
        section: {k: v for k, v in resolved[section].items() if k not in keys or v != defaults[section].get(k)}
        for section, keys in depends.items()
    }


def algorithm_class(name: str) -> Any:
    """The class behind `algorithm.name`."""
    from facade.algorithms import ALGORITHMS
    from facade.algorithms.base import Algorithm

    if not is_foreign(name):
        return look_up("algorithm", name, ALGORITHMS).algorithm
    found = foreign("algorithm", name)
    if not (isinstance(found, type) and issubclass(found, Algorithm) and dataclasses.is_dataclass(found)):
        raise ExperimentError(f"algorithm '{name}' is not a dataclass derived from facade.Algorithm")
    if inspect.get_annotations(found) and "__dataclass_fields__" not in vars(found):
        raise ExperimentError(
            f"algorithm '{name}' names fields that nobody could set; write @dataclass(frozen=True) above its class"
        )
    return found


def resolve_algorithm(written: Mapping[str, Any], also: str = "facade") -> dict[str, Any]:
    """The [algorithm] table with all fields of the named algorithm and no others. Fields of other
    known algorithms, and of `also`, are dropped, so one file serves a whole comparison; a key nobody knows is not."""
    from facade.algorithms import ALGORITHMS

    fields = dict(written)
    name = fields.pop("name", "facade")
    cls = algorithm_class(name)
    own = {f.name for f in dataclasses.fields(cls)}
    others = [entry.algorithm for entry in ALGORITHMS.values()]
    with contextlib.suppress(ExperimentError):  # it may not be here, and is not needed
        others.append(algorithm_class(also))
    known = own.union(*({f.name for f in dataclasses.fields(other)} for other in others))
    for key in fields:
        if key not in known:
            raise unknown("key", f"algorithm.{key}", [f"algorithm.{k}" for k in ("name", *known)])
    made = build_algorithm({"name": name} | {k: v for k, v in fields.items() if k in own})
    return {"name": name} | dataclasses.asdict(made)


def build_algorithm(resolved: Mapping[str, Any]) -> Any:
    """The algorithm that an [algorithm] table describes."""
    fields = {k: v for k, v in resolved.items() if k != "name"}
    try:
        return TypeAdapter(algorithm_class(resolved["name"])).validate_python(fields)
    except ValidationError as error:
        raise ExperimentError(_sentence(error, "algorithm.")) from None


def _sentence(error: ValidationError, prefix: str = "") -> str:
    """What is wrong with an experiment, in one sentence per mistake."""
    return "; ".join(_mistake(e, prefix) for e in error.errors())


def _mistake(error: Any, prefix: str) -> str:
    path = [str(part) for part in error["loc"] if part not in ("literal['auto']", "bool", "int", "str", "list[str]")]
    key = prefix + ".".join(path)
    if error["type"] == "extra_forbidden":
        section = SECTIONS.get(path[0])
        known = [f"{path[0]}.{k}" for k in section.model_fields] if section else list(SECTIONS)
        return str(unknown("key", key, known))
    if error["type"] == "missing":
        return f"{key} is required"
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "value_error":
        return f"{prefix.rstrip('.') or '.'.join(path)}: {message}".lstrip(": ")
    given = error["input"]
    shown = "NaN" if isinstance(given, float) and math.isnan(given) else repr(given)
    return f"{key} = {shown} is not possible: {message[0].lower()}{message[1:]}"
