"""One site: its directory, its private node.toml, the data that it brings."""

from __future__ import annotations

import dataclasses
import functools
import json
import tomllib
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from facade.core.names import is_foreign
from facade.errors import ExperimentError, FacadeError, first_mistake
from facade.peers.trust import identity
from facade.peers.trust.ceilings import Ceilings, refuse_excess
from facade.peers.trust.identity import Ask
from facade.peers.trust.membership import Membership, load
from facade.peers.trust.schema import Schema, schema_of_data

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from facade.data.federation import Federation
    from facade.data.samples import Dataset
    from facade.experiment.config import Experiment
    from facade.experiment.setup import Setup

D = TypeVar("D")

_NEVER_CODE = {"name", "data.clusters", "data.root", "runtime.device"}
"""Texts of an experiment that may well have a colon, and are never looked up."""


SETTINGS = "node.toml"
OPENS_NOTHING = frozenset({"digits", "synthetic"})
"""Sources of data that open no path, so that an experiment may choose them for a site."""


ALLOWS_ATTACK = "attack"
"""In node.toml's `allow`: an experiment may have this site attack others."""


class Settings(BaseModel):
    """node.toml: what concerns this site alone."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    id: str
    address: str
    """Where others reach this site."""
    listen: str = ""
    """Where it listens, if that is another address."""
    admins: list[str] = Field(min_length=1)
    """Public keys of the admins whose lists this site follows."""
    required: int = Field(1, ge=1)
    """How many of them must have signed a list."""
    ignore: list[str] = []
    """Ids of members that this site neither hears nor serves, whatever a list says; looked at again while it runs."""
    allow: list[str] = []
    """Names package.module:Attribute that an experiment may use here; "attack": it may have this site attack others."""
    metrics_listen: str = ""
    """host:port of Prometheus metrics and of /healthz and /readyz, for whoever reaches it; none if empty."""
    metrics_port: int = Field(0, ge=0, lt=65536)
    """The same on 127.0.0.1; 0 for none."""
    threads: int = Field(1, ge=0)
    """Threads that compute; 0: as many as there are cores."""
    data: dict[str, Any] = {}
    """This site's own [data]; source = "experiment" for its share of the experiment's own source, with the root and
    path given here. Without any, the experiment may only choose a source that opens nothing."""
    ceilings: Ceilings = Ceilings()
    """What no list may exceed here."""

    @model_validator(mode="after")
    def _makes_sense(self) -> Settings:
        if self.required > len(set(self.admins)):
            raise ValueError(
                f"required = {self.required} is more than the {len(set(self.admins))} admins; add others, or lower it"
            )
        for id in self.ignore:
            identity.check_member(id, self.address)
        if self.id in self.ignore:
            raise ValueError(f"ignore names this site itself ('{self.id}'); leave it out")
        if self.metrics_listen and self.metrics_port:
            raise ValueError("metrics_listen and metrics_port both say where metrics are; leave one of them out")
        if self.metrics_listen:
            identity.check_place("metrics_listen", self.metrics_listen)
        return self

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """Host and port of the metrics; None for none."""
        if self.metrics_listen:
            host, _, port = self.metrics_listen.rpartition(":")
            return host.strip("[]"), int(port)
        return ("127.0.0.1", self.metrics_port) if self.metrics_port else None

    @classmethod
    def load(cls, home: Path) -> Settings:
        """The node.toml of a site's directory."""
        path = home / SETTINGS
        try:
            return cls.model_validate(tomllib.loads(path.read_text()))
        except OSError as error:
            raise ExperimentError(f"{path} cannot be read ({error.strerror}); make it with: facade node init") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ExperimentError(f"{path} is not valid TOML: {error}") from None
        except ValidationError as error:
            raise ExperimentError(f"{path}: {first_mistake(error, cls.model_fields)}") from None


@dataclass(frozen=True)
class Site:
    """A site's directory with everything that must be there before it may start."""

    home: Path
    settings: Settings
    tls_key: bytes = field(repr=False)
    """PEM, not encrypted."""
    signing_key: Ed25519PrivateKey = field(repr=False)
    certificate: bytes
    _loaded: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The data that were loaded last, by what describes them."""

    @classmethod
    def load(cls, home: Path, ask: Ask = identity.cannot_ask) -> Site:
        """The site of a directory; ExperimentError if anything is missing or others can read keys. `ask` gives the
        passphrase of encrypted ones."""
        settings, ask = Settings.load(home), functools.cache(ask)
        key = identity.load_key(home / identity.TLS_KEY, ask)
        signing_key = identity.load_signing_key(home / identity.SIGNING_KEY, ask)
        try:
            certificate = (home / identity.CERTIFICATE).read_bytes()
            certified = identity.certified_key(certificate)
        except (OSError, ValueError) as error:
            raise ExperimentError(f"{home / identity.CERTIFICATE} cannot be used: {error}") from None
        if key.public_key() != certified:
            raise ExperimentError(
                f"{home / identity.CERTIFICATE} does not belong to {identity.TLS_KEY} beside it; if a change of the"
                " certificate was interrupted, end it with: facade node rotate --finish"
            )
        return cls(home, settings, identity.pem_of(key), signing_key, certificate)

    @property
    def run(self) -> Path:
        """Where the run's files are."""
        return self.home / "run"

    def once(self, described: str, load: Callable[[], D]) -> D:
        """The data that `load` gives; it is called only where other data are described than the last time, for
        lists that follow each other are played on the same."""
        if described not in self._loaded:
            self._loaded.clear()
            self._loaded[described] = load()
        data: D = self._loaded[described]
        return data

    def membership(self) -> Membership:
        """The list that the operator put into the directory; it must name this very site."""
        membership = load(self.home / "membership.json", self.settings.admins, self.settings.required)
        self.find_in(membership)
        return membership

    def find_in(self, membership: Membership) -> None:
        """ExperimentError unless a list names this very site, with its certificate."""
        me = membership.by_fingerprint.get(identity.fingerprint(self.certificate))
        if me is None or me.id != self.settings.id:
            raise ExperimentError(
                f"membership.json does not list this site ('{self.settings.id}') with its certificate;"
                f" send {self.settings.id}.join to the federation's admin"
            )
        self.check_signing_key(membership)

    def check_signing_key(self, membership: Membership) -> None:
        """ExperimentError for a signing key that is another than a list, in which this site is, has."""
        listed = membership.members[membership.number(self.settings.id)].signing_key
        if listed != identity.public_half(self.signing_key):
            raise ExperimentError(
                f"{self.home / identity.SIGNING_KEY} is not the key that the list of epoch {membership.epoch} has for"
                f" '{self.settings.id}'; restore it from a copy"
            )


def set_up(site: Site, membership: Membership) -> Setup:
    """The parts of a run as this site plays it."""
    from facade.experiment import setup

    experiment, number = _experiment(site, membership), membership.number(site.settings.id)
    federation = _federation(site, membership, experiment, number)
    parts = setup.set_up(experiment, federation, membership.founding_size)
    _refuse_infinities(parts)
    return parts


def check_playable(site: Site, membership: Membership) -> None:
    """ExperimentError for a list that this site could not play by: its names are not allowed here, or its
    experiment does not load, has no graph for so many members, or has a model that does not fit the schema."""
    from facade.experiment import setup
    from facade.learning.inputs import Inputs

    experiment, schema = _experiment(site, membership), membership.schema_
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they are given when the list is played by
            inputs = Inputs(tuple(schema.shape), schema.mean, schema.std, schema.scale)
            algorithm, _ = setup.planned(experiment, membership.founding_size)
            setup.learner_of(experiment, algorithm, inputs, schema.classes)
    except FacadeError:
        raise
    except Exception as error:  # of a user's own model, say
        raise ExperimentError(
            f"the experiment of epoch {membership.epoch} cannot be played here: {type(error).__name__}: {error};"
            " ask the federation's admin, or mend the code that node.toml allows"
        ) from error


def _experiment(site: Site, membership: Membership) -> Experiment:
    """The experiment of a list, with what this site has to say about it."""
    from facade.experiment.config import Experiment

    refuse_foreign_names(membership.experiment, site.settings.allow)
    settings = [f"runtime.threads={site.settings.threads}", "runtime.shards=1"]
    if site.settings.data.get("source", "experiment") == "experiment":  # other data are not the experiment's
        own = {key: site.settings.data[key] for key in ("root", "path") if site.settings.data.get(key)}
        settings += [f"data.{key}={json.dumps(str(value))}" for key, value in own.items()]
    experiment = Experiment.of(membership.experiment, settings)
    if experiment.n != membership.n:
        raise ExperimentError(f"the experiment is for {experiment.n} nodes but the list names {membership.n} members")
    refuse_attack(experiment, ALLOWS_ATTACK in site.settings.allow, f'add to node.toml: allow = ["{ALLOWS_ATTACK}"]')
    _refuse_chosen_data(site, experiment)
    refuse_excess(site.settings.ceilings, membership, experiment)
    return experiment


def _refuse_chosen_data(site: Site, experiment: Experiment) -> None:
    """ExperimentError where the list would choose what of this site's disk is trained on."""
    own, source = site.settings.data, experiment.data.source
    if source in OPENS_NOTHING | {"given"} or own.get("source", "experiment") != "experiment":
        return
    if not own.get("source") or not own.get("root"):
        raise ExperimentError(
            f"the experiment names data.source = '{source}', which reads from this site's disk, and"
            f" {site.home / 'node.toml'} does not say what it may read; add [data] with this site's own source, root"
            ' and path, or with source = "experiment" and root'
        )


def refuse_attack(experiment: Experiment, allowed: bool, how: str) -> None:
    """ExperimentError for an experiment that has members attack the others, unless that is allowed; `how` says by
    what. Attackers that see all messages are not allowed at all."""
    from facade.experiment.stages import attack_of

    kind, nodes = experiment.attack.kind, experiment.attack.nodes
    if kind == "none":
        return
    if not allowed:
        raise ExperimentError(
            f"the experiment has members attack the others (attack.kind = '{kind}', nodes = {nodes}), which is for"
            f" simulations; leave [attack] out, or, where all sites are yours and you want to try it, {how}"
        )
    attack = attack_of(experiment)
    if attack is not None and attack.omniscient:
        raise ExperimentError(
            f"attackers of kind '{kind}' see the messages of all members, which no site does; use: facade run"
        )


def _refuse_infinities(parts: Setup) -> None:
    """What a site starts with must pass the others' checks, or it would train alone to the end."""
    for name, leaf in parts.learner.init(parts.experiment.seed, 0, np.zeros(1, np.int64)).items():
        if not leaf.isfinite().all():
            raise ExperimentError(
                f"'{name}' of the model holds infinities or NaN, and peers refuse messages with such values;"
                " compute it in the model's forward instead"
            )


def refuse_foreign_names(experiment: Mapping[str, Any], allowed: list[str]) -> None:
    """A signed experiment must never choose code for others: ExperimentError for every name of a
    user's own code that node.toml does not allow. Called before anything is looked up."""
    for path, text in foreign_names(experiment):
        if text not in allowed:
            raise ExperimentError(
                f"the experiment names {path} = '{text}', which is code that this site has not allowed;"
                f' look at it, and add it to node.toml: allow = ["{text}"]'
            )


def foreign_names(experiment: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(path, text) of all that could name a user's own code."""
    return ((path, text) for path, text in _texts(experiment, "") if is_foreign(text) and path not in _NEVER_CODE)


def _texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """All texts in nested tables and lists, with their paths; keys count as texts too."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield path, str(key)
            yield from _texts(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner, path)


def _federation(site: Site, membership: Membership, experiment: Experiment, number: int) -> Federation:
    """This site's data as a federation in which all others hold nothing."""
    from facade.data.load import load as load_data
    from facade.data.samples import Holdings

    if site.settings.data.get("source", "experiment") == "experiment":
        if experiment.data.source == "given":
            raise ExperimentError(
                f"{site.home / 'node.toml'} does not say where this site's data are, and the experiment brings none;"
                " add [data] with source, root and path"
            )
        described = f"{experiment.seed} {experiment.data.model_dump_json()}"
        whole = site.once(described, lambda: load_data(experiment.data, experiment.seed))
        if schema_of_data(whole) != membership.schema_:
            raise ExperimentError("the data of this site are not what the membership list describes (schema)")
        rows = [held if node == number else held[:0] for node, held in enumerate(whole.training.rows)]
        return dataclasses.replace(whole, training=Holdings(whole.training.samples, whole.training.nodes, rows))
    written = _with_schema(site.settings.data, membership.schema_)
    dataset = site.once(json.dumps(written, default=str), lambda: _dataset(written))
    return _own_federation(dataset, membership.schema_, membership.n, number)


def _with_schema(written: dict[str, Any], schema: Schema) -> dict[str, Any]:
    """A site's own [data] with what all sites agreed on: how values become inputs, and the columns of tables."""
    agreed: dict[str, Any] = {} if schema.scale == "auto" else {"scale": schema.scale}
    if schema.columns:
        agreed["columns"] = [column.model_dump() for column in schema.columns]
    for key, value in agreed.items():
        if written.get(key, value) != value:
            raise ExperimentError(f"node.toml says data.{key} itself, but all sites agreed on another; leave it out")
    return agreed | written


def _dataset(written: dict[str, Any]) -> Dataset:
    """The data that a site's own node.toml names."""
    from facade.data.load import read
    from facade.experiment.config import Experiment

    dataset = read(Experiment.of({"data": {"clusters": "1", "skew": "none"} | written}).data)
    for note in dataset.notes:
        warnings.warn(note, stacklevel=2)
    return dataset


def _own_federation(dataset: Dataset, schema: Schema, n: int, number: int) -> Federation:
    """A site's own data as a federation in which all others hold nothing; classes are matched by name."""
    import torch

    from facade.data.federation import Federation
    from facade.data.matching import matched
    from facade.data.samples import Holdings

    if dataset.columns and dataset.columns != schema.columns:
        raise ExperimentError(
            "the site's data are a table, but the federation did not agree on the columns of one (schema); ask the"
            " admin to make the list with what facade data schema writes"
        )
    own = matched(dataset, schema.classes, schema.shape, "the federation")
    if dataset.scale != schema.scale or (schema.scale == "bits" and dataset.mean != schema.mean):
        raise ExperimentError(
            f"the federation agreed on values of scale '{schema.scale}' with mean {schema.mean[:3]}, but the site's are"
            f" '{dataset.scale}' with mean {dataset.mean[:3]}; convert the site's data to the type of the others'"
        )
    train, test = own.train, own.test
    if own.kept_back is not None:  # nobody validates here, and the others train without such rows too
        train = train[torch.from_numpy(~own.kept_back)]
    if not len(train) or not len(test):
        raise ExperimentError("this site's data have no training or no test samples; both are needed")
    rows = [np.arange(len(train)) if node == number else np.zeros(0, np.int64) for node in range(n)]
    return Federation(
        Holdings(train, np.arange(n), rows),
        [test],
        np.zeros(n, np.int64),
        schema.classes,
        schema.mean,
        schema.std,
        own_tests=True,
        scale=schema.scale,
        columns=schema.columns,
    )
