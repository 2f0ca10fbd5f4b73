"""A look at a site before it starts: what is wrong, in words."""

from __future__ import annotations

import functools
import hashlib
import shutil
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from facade.core.local_parts import published
from facade.core.tree import row_bytes
from facade.core.turn import listed
from facade.errors import FacadeError
from facade.peers.after.study_facts import is_over
from facade.peers.node.checkpoints import MOST
from facade.peers.node.site_epoch import SiteEpoch
from facade.peers.protocol import descriptors
from facade.peers.protocol.link_speed import LinkSpeed, SpeedProbe
from facade.peers.protocol.refusals import RefusedError
from facade.peers.protocol.rpc import Credentials, Link
from facade.peers.protocol.transport import UnreachableError
from facade.peers.protocol.wire import MessageForm
from facade.peers.trust import expiry, identity
from facade.peers.trust.identity import Ask, cannot_ask
from facade.peers.trust.membership import Limits, Membership
from facade.peers.trust.site import SETTINGS, Settings, Site
from facade.peers.trust.studies import chosen_studies, newest_list, refuse_twin, stray_list, studies_of

_FEW_DAYS = 30


class Finding(NamedTuple):
    """One thing that was looked at."""

    kind: Literal["ok", "note", "problem"]
    """A note is no problem, and yet may be news."""
    says: str
    study: str = ""
    """What it is about, where a site has several; empty where it is about the site."""


def examine(home: Path, ask: Ask = cannot_ask, names: Sequence[str] = ()) -> list[Finding]:
    """All findings about a site and its studies, or those of some names; they end early where nothing further can be
    looked at. `ask` gives the passphrase of encrypted keys."""
    return list(_until_error(_examine(home, functools.cache(ask), names)))


def _until_error(findings: Iterator[Finding]) -> Iterator[Finding]:
    try:
        yield from findings
    except FacadeError as error:
        yield Finding("problem", str(error))


def _examine(home: Path, ask: Ask, names: Sequence[str]) -> Iterator[Finding]:
    site, studies = Site.load(home, ask), chosen_studies(home, names)
    yield Finding("ok", "keys and node.toml are there, and the keys are private")
    yield from _settings_of_others(home / SETTINGS)
    yield from _settings_of_nobody(home)
    yield _dates("this site", site.certificate)
    if len(studies) == 1:
        yield from _examine_study(Site.load(home, ask, studies[0].name))
        return
    under_way = [study for study in studies if not is_over(study)]
    yield from _descriptors([newest for study in under_way if (newest := newest_list(study)) is not None])
    for study in studies:
        if study in under_way:
            findings = _until_error(_examine_study(Site.load(home, ask, study.name), alone=False))
        else:
            findings = iter([Finding("ok", f"finished; its results are in {study.run}")])
        yield from (finding._replace(study=study.name) for finding in findings)


def _settings_of_nobody(home: Path) -> Iterator[Finding]:
    """A name that is written in another way in node.toml would have a study play with the site's own data."""
    there = {study.name for study in studies_of(home)}
    for name in Settings.load(home).study:
        if name not in there:
            known = ", ".join(sorted(there))
            yield Finding("note", f"node.toml has [study.{name}], and there is no such study here, but: {known}")


def _examine_study(site: Site, alone: bool = True) -> Iterator[Finding]:
    refuse_twin(site.home, site.study)
    if site.study.is_stray:
        yield Finding("problem", stray_list(site.study))
        return
    membership = site.membership()
    yield Finding("ok", f"epoch {membership.epoch} of '{membership.federation}', signed by a known admin")
    yield from _last_day(membership)
    for member in membership.members:
        finding = _dates(member.id, member.certificate)
        if finding.kind == "problem" or identity.days_left(member.certificate) < _FEW_DAYS:
            yield finding
    speeds: dict[str, LinkSpeed] = {}
    yield from _peers(site, membership, speeds)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        epoch = SiteEpoch.of(site, membership)
    yield _agreement(epoch)
    yield from (Finding("note", str(warning.message)) for warning in caught)
    yield _disk(site, epoch)
    if alone:
        yield from _descriptors([membership])
    yield from _exchange(epoch, speeds)


def _settings_of_others(path: Path) -> Iterator[Finding]:
    """Whoever can write node.toml chooses what code runs here; who can read it learns where the data are."""
    mode = path.stat().st_mode
    if mode & 0o022:
        yield Finding("problem", f"{path} can be changed by others than its owner; run: chmod 600 {path}")
    elif mode & 0o044:
        yield Finding("note", f"{path} can be read by others than its owner; to keep it private: chmod 600 {path}")


def _dates(whose: str, certificate: str | bytes) -> Finding:
    left, waits = identity.days_left(certificate), identity.days_to_wait(certificate)
    if left <= 0:
        return Finding("problem", f"the certificate of {whose} expired {-left:.0f} days ago, by this machine's clock")
    if waits > 0:
        return Finding(
            "problem", f"the certificate of {whose} begins in {waits:.1f} days, by this machine's clock; is that right?"
        )
    return Finding("ok", f"the certificate of {whose} is good for {left:.0f} days")


def _last_day(membership: Membership) -> Iterator[Finding]:
    left = expiry.days_left(membership.expires)
    if left is None:
        return
    if left < 0:
        yield Finding("problem", f"the list expired after {membership.expires}; ask the admin for the next one")
    else:
        yield Finding("note" if left < _FEW_DAYS else "ok", f"the list is good for {left} days and today, in UTC")


def _agreement(epoch: SiteEpoch) -> Finding:
    """Sites that print the same two marks play the same experiment on data of the same form."""
    images = sum(len(rows) for rows in epoch.shard.data.rows)
    schema = hashlib.sha256(identity.canonical(epoch.membership.schema_.model_dump())).hexdigest()
    marks = f"the experiment ({epoch.setup.experiment.hash[:8]}) and the classes ({schema[:8]})"
    return Finding("ok", f"{marks} agree with this site's data ({images} training samples)")


def _disk(site: Site, epoch: SiteEpoch) -> Finding:
    state = epoch.setup.algorithm.init(epoch.shard)
    needed = row_bytes(state) * (4 + MOST + epoch.membership.limits.window)
    free = shutil.disk_usage(site.home).free
    return Finding(
        "ok" if free > needed else "problem",
        f"disk: about {needed / 1e6:.1f} MB are needed, {free / 1e6:.0f} MB are free",
    )


def _descriptors(lists: Sequence[Membership]) -> Iterator[Finding]:
    """Files and connections that a node, which allows itself all it may, can have open, with the members of all studies
    that it plays."""
    members = sum(membership.n for membership in lists)
    needs, may = descriptors.needed(members), descriptors.highest_limit()
    if may < needs:
        yield Finding(
            "problem",
            f"open files: {needs} are needed with {members} members, this user may have {may};"
            " raise the limit (ulimit -Hn, or LimitNOFILE= of a systemd unit)",
        )
    else:
        yield Finding("ok", f"open files: {needs} are needed, {may} are allowed")


def _peers(site: Site, membership: Membership, speeds: dict[str, LinkSpeed]) -> Iterator[Finding]:
    """Call every peer; how fast those are that answer is added to `speeds`."""
    number = membership.number(site.settings.id)
    for member in membership.members:
        if member.id == site.settings.id:
            continue
        if member.id in site.settings.ignore:
            yield Finding("note", f"{member.id} is ignored, as node.toml says")
            continue
        link = Link(Credentials(site.tls_key, site.certificate), member, membership.limits.chunk)
        caller = SpeedProbe(link, membership, number)
        try:
            refused = caller.meet()
            if refused is not None:
                yield Finding("problem", f"{member.id} refuses this site: {refused.why(membership.digest)}")
                continue
            speed = speeds[member.id] = caller.measure()
            sends = f"sends {speed.rate / 1e6:.1f} MB/s"
            yield Finding("ok", f"{member.id} answers in {1000 * speed.trip:.1f} ms and {sends}")
        except RefusedError as error:
            yield Finding("problem", f"{member.id} at {member.address} gives no usable answer ({error})")
        except UnreachableError as error:
            where = f"{member.id} at {member.address}"
            if error.denied:
                yield Finding("problem", f"{where} does not know this site's certificate; does it have the same list?")
            else:
                yield Finding("note", f"{where} does not answer; start it, or see whether it can be reached")
        finally:
            link.close()


def _exchange(epoch: SiteEpoch, speeds: dict[str, LinkSpeed]) -> Iterator[Finding]:
    """What hearing a round's neighbours takes: with the nearest ones, and with the farthest among them."""
    algorithm = epoch.setup.algorithm
    state = algorithm.init(epoch.shard)
    turn = epoch.plan.turn(epoch.shard, epoch.membership.first_round)
    size = MessageForm(published(algorithm, turn, state)).size
    wanted = len(listed(epoch.shard, algorithm.wanted(turn, state)).sender)
    if not wanted or not speeds:
        return
    takes = sorted((speed.takes(size), id) for id, speed in speeds.items())
    least, (most, farthest) = takes[min(wanted, len(takes)) - 1][0], takes[-1]
    limits = epoch.membership.limits
    yield Finding(
        "ok" if most < limits.deadline else "problem",
        f"a round brings {wanted} messages of {size / 1e6:.2f} MB, which takes at least {least:.3f} s;"
        f" with {farthest} among them, {most:.3f} s",
    )
    if epoch.membership.policy == "brisk" and limits.floor < most < limits.deadline:
        yield Finding("note", _shorter_wait(farthest, most, limits))


def _shorter_wait(farthest: str, seconds: float, limits: Limits) -> str:
    """What `brisk` does with a message that takes longer than it waits at first."""
    return (
        f"a message of {farthest} takes {seconds:.1f} s, but the policy brisk waits {limits.floor:g} s until it"
        f" has learnt more, and {limits.grace:g} s for the rest when half have come; to hear {farthest} in every round,"
        f" ask the admin for the policy patient, or for the limits floor = {3 * seconds:.0f} and grace = {seconds:.0f}"
    )
