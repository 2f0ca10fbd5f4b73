"""Founding a federation: a site's keys and settings, and the list that the admin makes of the sites'
.join files."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import tomli_w

from facade.errors import ExperimentError
from facade.files import store
from facade.peers.trust import bounds, identity
from facade.peers.trust.identity import Ask, Join
from facade.peers.trust.membership import PROTOCOL, Limits, Member, Membership, checked_list, resized
from facade.peers.trust.schema import Schema, schema_of_data
from facade.peers.trust.site import Settings
from facade.peers.trust.studies import newest_list, studies_of

if TYPE_CHECKING:
    from facade.experiment.config import Experiment

CERTIFICATE_DAYS = 365

_DATA_TEMPLATE = """
# This site's own data; other keys stand above. A relative root counts from where the node is started.
# [data]
# source = "npz"
# root = "/data"
# path = "ward.npz"

# What no list may exceed here; these are the defaults.
# [ceilings]
# rounds = 10000
# seconds = 86400
# samples = 1000000
# memory_mb = 8192
# disk_mb = 20480
# message_mb = 1024
"""


@dataclass(frozen=True)
class NewSite:
    """What a site must say about itself."""

    id: str
    address: str
    admins: Sequence[str]
    settings: dict[str, Any] = field(default_factory=dict)
    """Further entries of node.toml."""
    days: int = CERTIFICATE_DAYS
    passphrase: bytes | None = field(default=None, repr=False)
    """With one, the keys are encrypted."""


def found_site(home: Path, new: NewSite) -> Path:
    """Make a site's keys, certificate, node.toml and .join file; the path of the last."""
    identity.check_name(new.id)
    for admin in new.admins:
        if len(admin) != 64 or not all(c in "0123456789abcdef" for c in admin):
            raise ExperimentError(f"the admin's key {admin} is not a public key; expected 64 hexadecimal digits")
    if new.settings.get("required", 1) > len(set(new.admins)):
        raise ExperimentError(
            f"{new.settings['required']} admins must sign, but {len(set(new.admins))} are named; name all of them"
        )
    identity.check_address("address", new.address)
    for place in ("listen", "metrics_listen"):
        if where := new.settings.get(place):
            identity.check_address(place, where)
    with store.writing(home):
        store.make_directory(home)
        _refuse_open(home)
    if (home / "node.toml").exists():
        raise ExperimentError(f"{home} is a site already; give another directory")
    key, certificate = identity.new_certificate(new.id, new.days, passphrase=new.passphrase)
    identity.private(home / identity.TLS_KEY, key)
    public = identity.new_signing_key(home / identity.SIGNING_KEY, new.passphrase)
    store.replace(home / identity.CERTIFICATE, certificate, store.PRIVATE)
    settings = {"id": new.id, "address": new.address, "admins": list(new.admins), "allow": []} | new.settings
    template = "" if "data" in settings else _DATA_TEMPLATE
    identity.private(home / "node.toml", (tomli_w.dumps(settings) + template).encode())
    join = home / f"{new.id}.join"
    store.replace(join, Join(new.id, new.address, certificate.decode(), public).json().encode())
    return join


def _refuse_open(home: Path) -> None:
    """ExperimentError for a site's directory that others can read or write."""
    mode = home.stat().st_mode & 0o777
    if mode & 0o066:
        raise ExperimentError(
            f"{home} can be read or written by others than its owner (mode {mode:o}), and is to hold a site's keys;"
            f" run: chmod 700 {quote(str(home))}, or name a new directory as `home`"
        )


def rotate_site(home: Path, id: str, days: int = CERTIFICATE_DAYS, ask: Ask = identity.cannot_ask) -> Path:
    """Make a second key and certificate beside the ones in use; the path of the new .join file. `ask` gives the
    passphrase, if the keys are encrypted: so is the new one."""
    address, ask = Settings.load(home).address, functools.cache(ask)
    signing = home / identity.SIGNING_KEY
    public = identity.public_half(identity.load_signing_key(signing, ask))
    passphrase = ask() if identity.is_encrypted(signing) else None
    key, certificate = identity.new_certificate(id, days, passphrase=passphrase)
    identity.private(home / f"next-{identity.TLS_KEY}", key)
    store.replace(home / f"next-{identity.CERTIFICATE}", certificate, store.PRIVATE)
    path = home / f"next-{id}.join"  # made and moved last: while it is there, a change is under way
    store.replace(path, Join(id, address, certificate.decode(), public).json().encode())
    return path


def finish_rotation(home: Path, id: str) -> None:
    """Use the new key and certificate from the next start on. What was interrupted goes on."""
    if not (home / f"next-{id}.join").exists():
        raise ExperimentError(f"{home} holds no new certificate; make one with: facade node rotate")
    if (home / f"next-{identity.TLS_KEY}").exists():  # else the change is under way, and there is no way back
        _refuse_unlisted(home, id, (home / f"next-{identity.CERTIFICATE}").read_bytes())
    with store.writing(home):
        for name in (identity.TLS_KEY, identity.CERTIFICATE, f"{id}.join"):
            if (home / f"next-{name}").exists():
                (home / f"next-{name}").replace(home / name)


def _refuse_unlisted(home: Path, id: str, certificate: bytes) -> None:
    """ExperimentError where a study that is not finished has no list with a certificate yet: one is shown for all."""
    for study in studies_of(home):
        newest = None if study.is_finished else newest_list(study)
        if newest is not None and newest.has(id) and identity.fingerprint(certificate) not in newest.by_fingerprint:
            raise ExperimentError(
                f"the newest list of study '{study.name}' (epoch {newest.epoch}) does not have the new certificate yet,"
                f" and this site shows one for all studies; have its admin list it first with: facade network update"
                f" --rotate next-{id}.join"
            )


@dataclass(frozen=True)
class Terms:
    """What the admin decides."""

    federation: str
    admins: Sequence[str]
    policy: str = "brisk"
    limits: Limits = field(default_factory=Limits)
    schema: Schema | None = None
    """None: that of the experiment's own data."""
    required: int = 1
    """How many admins must sign."""
    expires: str = ""
    """The last day of the list, such as 2027-03-31; none if empty."""


def found_federation(joins: Sequence[Join], experiment: Experiment, terms: Terms) -> Membership:
    """The first epoch's list."""
    ids = [join.id for join in joins]
    twice = sorted({id for id in ids if ids.count(id) > 1})
    if twice:
        raise ExperimentError(f"two .join files have the same id: {', '.join(twice)}; ids must be different")
    if len(joins) < 2:
        raise ExperimentError(f"a federation needs at least 2 sites, {len(joins)} given")
    described = resized(experiment.model_dump(), len(joins))
    described["data"] |= {"root": bounds.ROOT, "path": ""}  # where data lie is every site's own business
    return checked_list(
        {
            "federation": terms.federation,
            "epoch": 1,
            "first_round": 0,
            "founding_size": len(joins),
            "protocol": PROTOCOL,
            "experiment": json.loads(json.dumps(described)),
            "schema": (terms.schema or schema_of(experiment)).model_dump(),
            "policy": terms.policy,
            "limits": terms.limits.model_dump(),
            "members": [Member(**join.__dict__).model_dump() for join in sorted(joins, key=lambda join: join.id)],
            "admins": list(terms.admins),
            "required": terms.required,
            "expires": terms.expires,
        }
    )


def check_plan(membership: Membership) -> None:
    """ExperimentError for a list that no site could play by: its experiment does not load, has no graph for so
    many members, or ends before the list begins. What depends on a site's machine or data is left to the sites."""
    from facade.experiment.config import Experiment
    from facade.experiment.setup import planned

    _, plan = planned(Experiment.of(membership.experiment), membership.founding_size)
    if membership.first_round > plan.rounds:  # round T is the final exchange
        raise ExperimentError(
            f"round {membership.first_round}, the first of this list, would never come: the run ends with round"
            f" {plan.rounds}"
        )


def schema_of(experiment: Experiment) -> Schema:
    """What the experiment's own data look like."""
    from facade.data.load import load

    if experiment.data.source == "given":
        raise ExperimentError(
            "data.source = 'given': the sites bring their own data, so say what they look like;"
            " add `schema`, which: facade data schema writes"
        )
    return schema_of_data(load(experiment.data, experiment.seed))
