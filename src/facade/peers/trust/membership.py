"""The only configuration that sites share: who takes part, in what, from which round on; signed by
the admins whose keys the sites pinned. Epochs follow each other; each governs the rounds from its
first round until the next one's.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import Field, ValidationError, model_validator

import facade
from facade.data.clusters import UNKNOWN, cluster_sizes
from facade.errors import ExperimentError, first_mistake
from facade.peers.trust import bounds, identity
from facade.peers.trust.expiry import check_date, refuse_expired
from facade.peers.trust.identity import Ask
from facade.peers.trust.schema import ListPart, Schema
from facade.peers.trust.signatures import check_signers, good_signatures, signature

PROTOCOL = 1
_VERSION = facade.__version__
"""Looked up now: refusing a list opens no file."""


class Limits(ListPart):
    """Seconds, bytes and rounds that bound what peers wait for and keep."""

    deadline: float = Field(600.0, gt=0)
    """Seconds to wait for a round's messages at most."""
    floor: float = Field(5.0, gt=0)
    """Seconds that `brisk` waits at least, without grace or suspicion."""
    grace: float = Field(1.0, gt=0)
    """Seconds that `brisk` waits at least for the rest when half have come, and for a suspect."""
    linger: float = Field(60.0, gt=0)
    """Seconds a finished node waits for peers it cannot reach."""
    chunk: int = Field(1 << 22, ge=1 << 15, le=1 << 22)
    """Bytes of a message in a call at most."""
    window: int = Field(8, ge=4)
    """Rounds of outgoing messages that a node keeps."""
    quorum: float = Field(0.5, ge=0, lt=1)
    """A node goes on while more than this share of the members are there, itself included; 0: always."""


class Member(ListPart):
    """A site as the others know it."""

    id: str
    address: str
    certificate: str = Field(min_length=1)
    """PEM; others trust this very certificate, and no authority."""
    next_certificate: str = ""
    """PEM of the one it is about to change to; both are good meanwhile."""
    signing_key: str

    @property
    def certificates(self) -> list[str]:
        """The certificates that are good now."""
        return [pem for pem in (self.certificate, self.next_certificate) if pem]


class Membership(ListPart):
    """One epoch of a federation."""

    federation: str
    epoch: int = Field(ge=1)
    first_round: int = Field(ge=0)
    founding_size: int = Field(ge=2)
    """Members of the first list. What a run times by how fast news spreads among them keeps its time when some come
    or go."""
    protocol: Literal[1]
    experiment: dict[str, Any]
    """Resolved; a site checks its names before it makes an Experiment of it."""
    schema_: Schema = Field(alias="schema")
    policy: Literal["patient", "brisk"]
    limits: Limits
    members: list[Member] = Field(min_length=2)
    admins: list[str] = Field(min_length=1)
    required: int = Field(1, ge=1)
    """How many of the admins must have signed."""
    expires: str = ""
    """The last day, in UTC, on which rounds are begun by this list; none if empty."""
    goes_back: bool = False
    """Whether what was played by earlier lists from the first round on does not count: sites go back to that round."""

    @model_validator(mode="before")
    @classmethod
    def _is_plain_data(cls, written: Any) -> Any:
        bounds.check_list(written)
        spoken = written.get("protocol", PROTOCOL)
        if spoken != PROTOCOL:  # whatever else in it is new
            raise ValueError(
                f"it is for protocol {spoken}, and Facade {_VERSION}, which is installed here, speaks"
                f" protocol {PROTOCOL}; all sites and admins of a federation need versions of one protocol"
            )
        return written

    @model_validator(mode="after")
    def _admins_can_sign(self) -> Membership:
        if len(set(self.admins)) < len(self.admins) or self.required > len(self.admins):
            raise ValueError(
                f"required = {self.required} of {len(set(self.admins))} different admins is not possible; expected each"
                " admin once, and at least as many as are required"
            )
        check_date(self.expires)
        return self

    @model_validator(mode="after")
    def _ids_are_sorted_and_certificates_their_own(self) -> Membership:
        ids = [member.id for member in self.members]
        if ids != sorted(set(ids)):
            raise ValueError("members must be listed once each, in ascending order of their ids")
        for member in self.members:
            identity.check_member(member.id, member.address)
            identity.check_certificates(member.id, member.certificates)
        return self

    @property
    def written(self) -> dict[str, Any]:
        """As it stands in a file. What was added to lists later is left out where it says nothing, so that earlier
        lists keep their digests."""
        described = self.model_dump(by_alias=True)
        described["schema"] = _without_silent(described["schema"], {"scale": "auto", "columns": []})
        return _without_silent(described, {"required": 1, "expires": "", "goes_back": False})

    @functools.cached_property
    def content(self) -> bytes:
        """What is signed and hashed."""
        return identity.canonical(self.written)

    @functools.cached_property
    def digest(self) -> bytes:
        """SHA-256 that every call carries."""
        return hashlib.sha256(self.content).digest()

    @functools.cached_property
    def by_fingerprint(self) -> dict[str, Member]:
        """Members by the fingerprints of the certificates that are good now."""
        return {identity.fingerprint(pem): member for member in self.members for pem in member.certificates}

    @property
    def n(self) -> int:
        """Number of members."""
        return len(self.members)

    @functools.cached_property
    def _numbers(self) -> dict[str, int]:
        return {member.id: number for number, member in enumerate(self.members)}

    def has(self, id: str) -> bool:
        """Whether the site of an id is a member."""
        return id in self._numbers

    def number(self, id: str) -> int:
        """A member's place in the list; ExperimentError for others."""
        if not self.has(id):
            raise ExperimentError(
                f"'{id}' is no member in epoch {self.epoch}; members are {', '.join(sorted(self._numbers))}"
            )
        return self._numbers[id]

    def refuse_expired(self) -> None:
        """ExperimentError if the last day of this list is over."""
        refuse_expired(f"the list of epoch {self.epoch}", self.expires)

    def sign(self, keys: Iterable[Path], earlier: dict[str, str] | None = None, ask: Ask = identity.cannot_ask) -> str:
        """The text of a membership.json, signed with admins' keys; `earlier` are signatures, by admin, that it has.
        `ask` gives the passphrase of encrypted keys."""
        given = [{"admin": admin, "signature": signed} for admin, signed in (earlier or {}).items()]
        added = [signature(self.content, path, self.admins, ask) for path in keys]
        new = [entry for entry in given if entry["admin"] not in {one["admin"] for one in added}] + added
        return json.dumps({"membership": self.written, "signatures": new}, indent=1) + "\n"


def _without_silent(described: dict[str, Any], silent: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in described.items() if key not in silent or value != silent[key]}


class SignedList(NamedTuple):
    """A list, and its good signatures by admin."""

    membership: Membership
    signatures: dict[str, str]


def load(path: Path, pinned: Sequence[str], needed: int = 1) -> Membership:
    """A membership.json that enough of the pinned admins signed; everything else is refused."""
    return verified(read(path), path, pinned, needed)


def vouched(path: Path) -> Membership:
    """A membership.json that one of the admins it names has signed: whoever gives it vouches for these, and damage is
    noticed."""
    listed, signatures = signed_list(read(path), path)
    if not signatures:
        raise ExperimentError(
            f"{path} is not as one of its admins signed it: it is damaged, or was changed; get it again from the"
            " federation's admin"
        )
    return listed


def read(path: Path) -> bytes:
    """The content of a membership.json, as it is; of a longer one than there can be, so much that this shows."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ExperimentError(f"{path} is not a file; put the list there that the federation's admin made")
        with path.open("rb") as file:
            return file.read(bounds.LARGEST_FILE + 1)
    except OSError as error:
        raise ExperimentError(
            f"{path} cannot be read ({error.strerror}); get it from the federation's admin, or make it with:"
            " facade network build"
        ) from None


def signed_list(text: bytes, path: Path) -> SignedList:
    """The list in the content of a file, whoever signed it; ExperimentError if there is none."""
    try:
        written = bounds.plain_json(text)
        if not isinstance(written, dict) or written.keys() != {"membership", "signatures"}:
            raise ValueError("it must have the keys membership and signatures, and no others")
        membership = Membership.model_validate(written["membership"])
        good = good_signatures(written["signatures"], membership.content, membership.admins)
    except (ValueError, RecursionError) as error:
        mistake = first_mistake(error) if isinstance(error, ValidationError) else str(error)
        raise ExperimentError(f"{path} is not a membership list: {mistake}") from None
    return SignedList(membership, good)


def verified(text: bytes, path: Path, pinned: Sequence[str], needed: int = 1) -> Membership:
    """The list in the content of a file, if `needed` of the pinned admins signed it, or as many as it says itself."""
    membership, signatures = signed_list(text, path)
    check_signers(path, signatures, pinned, max(needed, membership.required))
    return membership


class OtherRunError(ExperimentError):
    """A list does not go on from those that a run is played by."""


@dataclass
class Epochs:
    """The lists that a node knows, by ascending epoch."""

    known: list[Membership] = field(default_factory=list)

    def follows(self, membership: Membership) -> bool:
        """Whether a list is a new one; OtherRunError if it fits none of the known ones. A later one must begin
        later, unless it goes back."""
        for other in self.known:
            if membership.epoch == other.epoch:
                if membership.digest != other.digest:
                    raise OtherRunError(
                        f"there are two different lists for epoch {membership.epoch}; ask the federation's admin"
                    )
                return False
        later = [m for m in self.known if m.epoch > membership.epoch]
        newest = self.known[-1] if self.known else None
        too_early = newest and membership.first_round <= newest.first_round and not membership.goes_back
        if newest and (membership.federation != newest.federation or (not later and too_early)):
            raise OtherRunError(
                f"epoch {membership.epoch} of '{membership.federation}' cannot follow epoch {newest.epoch} of"
                f" '{newest.federation}' from round {membership.first_round}"
            )
        if newest and membership.founding_size != newest.founding_size:
            raise OtherRunError(
                f"the list of epoch {membership.epoch} says that {membership.founding_size} members founded"
                f" '{membership.federation}', that of epoch {newest.epoch} says {newest.founding_size}; make lists"
                " with: facade network update"
            )
        return True

    def add(self, membership: Membership) -> None:
        """Take a list, if it is a new one."""
        if self.follows(membership):
            self.known = sorted([*self.known, membership], key=lambda m: m.epoch)

    def governing(self, round: int) -> Membership:
        """The list that a round is played by."""
        return max((m for m in self.known if m.first_round <= round), key=lambda m: m.epoch, default=self.known[0])

    def going_back(self, epoch: int) -> list[Membership]:
        """The lists later than that of an epoch that go back."""
        return [m for m in self.known if m.goes_back and m.epoch > epoch]

    def current(self, round: int) -> list[Membership]:
        """The lists whose members may call a node that is in `round`: the governing one and later."""
        now = self.governing(round)
        return [m for m in self.known if m.epoch >= now.epoch]

    def certificates(self, id: str, round: int) -> list[str]:
        """The certificates that a member may show to a node in `round`. A new one is good as soon as a
        list names it, so that a site can change to it before the list is in force."""
        listed = (member for m in self.current(round) for member in m.members if member.id == id)
        return list(dict.fromkeys(pem for member in listed for pem in member.certificates))


@dataclass(frozen=True)
class Change:
    """What an update does to a list."""

    add: Sequence[identity.Join] = ()
    remove: Sequence[str] = ()
    rotate: Sequence[identity.Join] = ()
    """Sites with a new certificate; the old one stays good until the next update is in force."""
    required: int | None = None
    """How many admins must sign; None: as before."""
    expires: str | None = None
    """The last day of the new list; None: as before."""
    goes_back: bool = False
    """Whether sites that have played the first round of the new list go back to it."""


def changed(old: Membership, change: Change, first_round: int) -> Membership:
    """The next epoch."""
    members = {member.id: member for member in old.members}
    named = [*(join.id for join in change.add), *change.remove, *(join.id for join in change.rotate)]
    twice = sorted({id for id in named if named.count(id) > 1})
    if twice:
        raise ExperimentError(f"'{twice[0]}' is named twice; a site can be added, removed or rotated, and once")
    for id in [*change.remove, *(join.id for join in change.rotate)]:
        if id not in members:
            raise ExperimentError(f"'{id}' is no member; members are {', '.join(sorted(members))}")
    if first_round <= old.first_round and not change.goes_back:
        raise ExperimentError(
            f"round {first_round}, the first of the new list, is not after round {old.first_round}, where the old one"
            " begins"
        )
    for join in change.add:
        if join.id in members:
            raise ExperimentError(f"'{join.id}' is a member already; use `rotate` to change its certificate")
    settled = {
        id: m.model_copy(update={"certificate": m.next_certificate or m.certificate, "next_certificate": ""})
        for id, m in members.items()
        if id not in change.remove
    }
    for join in change.rotate:
        settled[join.id] = settled[join.id].model_copy(
            update={"address": join.address, "next_certificate": join.certificate}
        )
    settled |= {join.id: Member(**dataclasses.asdict(join)) for join in change.add}
    update = {
        "epoch": old.epoch + 1,
        "first_round": first_round,
        "goes_back": change.goes_back,
        "members": [settled[id].model_dump() for id in sorted(settled)],
        "experiment": resized(old.experiment, len(settled)),
        "required": old.required if change.required is None else change.required,
        "expires": old.expires if change.expires is None else change.expires,
    }
    return checked_list(old.model_dump(by_alias=True) | update)  # a copy would keep the old digest


def checked_list(described: dict[str, Any]) -> Membership:
    """The list that is described; ExperimentError if there cannot be such a one."""
    try:
        return Membership.model_validate(described)
    except ValidationError as error:
        raise ExperimentError(f"such a list is not possible: {first_mistake(error)}") from None


def resized(experiment: dict[str, Any], n: int) -> dict[str, Any]:
    """The experiment for n nodes. Where sites bring their own data, clusters are just their number."""
    sizes = cluster_sizes(experiment["data"]["clusters"])
    if sum(sizes) == n:
        return experiment
    if experiment["data"]["clusters"] != UNKNOWN and experiment["data"]["source"] != "given":
        raise ExperimentError(
            f"data.clusters = '{experiment['data']['clusters']}' asks for {sum(sizes)} nodes but there are {n} members;"
            " change data.clusters, or set data.source = 'given' where sites bring their own data"
        )
    return experiment | {"data": experiment["data"] | {"clusters": str(n)}}
