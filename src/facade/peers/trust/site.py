"""One site: its directory, its private node.toml, what a list may have it do."""

from __future__ import annotations

import functools
import json
import threading
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
from facade.peers.trust.own_data import OwnData
from facade.peers.trust.studies import MAIN, Study, check_study, study_of

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from facade.experiment.config import Experiment
    from facade.experiment.setup import Setup

D = TypeVar("D")

_NEVER_CODE = {"name", "data.clusters", "data.root", "runtime.device"}
"""Texts of an experiment that may well have a colon, and are never looked up."""


SETTINGS = "node.toml"
_filtering = threading.Lock()
"""What is done about warnings is the whole process's, and each study has a thread."""
OPENS_NOTHING = frozenset({"digits", "synthetic"})
"""Sources of data that open no path, so that an experiment may choose them for a site."""


ALLOWS_ATTACK = "attack"
"""In node.toml's `allow`: an experiment may have this site attack others."""


class StudySettings(BaseModel):
    """[study.NAME] of node.toml: what holds for one study, in place of what stands at the top. An admin of one study
    must not sign lists of another, nor may one study's list use another's data or code; ids name other sites there."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    admins: list[str] = Field([], min_length=1)
    required: int = Field(1, ge=1)
    ignore: list[str] = []
    allow: list[str] = []
    data: dict[str, Any] = {}
    ceilings: Ceilings = Ceilings()
    """Those given here; others as for the site."""


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
    """Threads that compute; 0: as many as there are cores. Studies side by side share them; each has one at least."""
    data: dict[str, Any] = {}
    """This site's own [data]; source = "experiment" for its share of the experiment's own source, with the root and
    path given here. Without any, the experiment may only choose a source that opens nothing."""
    ceilings: Ceilings = Ceilings()
    """What no list may exceed here."""
    study: dict[str, StudySettings] = {}
    """What holds for studies of their own, by name."""

    @model_validator(mode="after")
    def _makes_sense(self) -> Settings:
        self._check()
        for name in self.study:
            try:
                check_study(name)
                self.of_study(name)._check()
            except (ExperimentError, ValueError) as error:
                raise ValueError(f"[study.{name}]: {error}") from None
        return self

    def _check(self) -> None:
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

    def of_study(self, name: str) -> Settings:
        """The same for one study: what is said of it in place of what holds for those without settings of their own."""
        own = self.study.get(name)
        if own is None:
            return self
        said = {key: getattr(own, key) for key in own.model_fields_set}
        if "ceilings" in said:
            said["ceilings"] = self.ceilings.model_copy(update=own.ceilings.model_dump(exclude_unset=True))
        return self.model_copy(update=said)

    @property
    def listens_at(self) -> str:
        """host:port where this site listens."""
        return self.listen or self.address

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
    """A site's directory with everything that must be there before it may start with one of its studies."""

    home: Path
    study: Study
    settings: Settings
    """Those of the study."""
    tls_key: bytes = field(repr=False)
    """PEM, not encrypted."""
    signing_key: Ed25519PrivateKey = field(repr=False)
    certificate: bytes
    _loaded: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The data that were loaded last, by what describes them."""

    @classmethod
    def load(cls, home: Path, ask: Ask = identity.cannot_ask, study: str = MAIN) -> Site:
        """The site of a directory, for one of its studies; ExperimentError if anything is missing or others can read
        keys. `ask` gives the passphrase of encrypted ones."""
        settings, ask = Settings.load(home).of_study(study), functools.cache(ask)
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
        return cls(home, study_of(home, study), settings, identity.pem_of(key), signing_key, certificate)

    @property
    def run(self) -> Path:
        """Where the files of the study's run are."""
        return self.study.run

    def once(self, described: str, load: Callable[[], D]) -> D:
        """The data that `load` gives; it is called only where other data are described than the last time, for
        lists that follow each other are played on the same."""
        if described not in self._loaded:
            self._loaded.clear()
            self._loaded[described] = load()
        data: D = self._loaded[described]
        return data

    def membership(self) -> Membership:
        """The list that the operator put into the study's directory; it must name this very site."""
        membership = load(self.study.list_path, self.settings.admins, self.settings.required)
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
    own = OwnData(site.settings.data, site.home / SETTINGS, site.once)
    federation = own.federation(membership, experiment, number)
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
        with _filtering, warnings.catch_warnings():
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
