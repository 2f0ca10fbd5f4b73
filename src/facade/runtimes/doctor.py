"""A look at a site before it starts: what is wrong, in words."""

from __future__ import annotations

import shutil
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from facade.errors import FacadeError
from facade.peers import identity
from facade.peers.headers import Kind, Request, Status
from facade.peers.membership import Membership
from facade.peers.refusals import Reason, RefusedError
from facade.peers.site import Site
from facade.runtimes.rpc import Credentials, Link, UnreachableError
from facade.runtimes.scene import Scene
from facade.tree import row_bytes

_FEW_DAYS = 30


class Finding(NamedTuple):
    """One thing that was looked at."""

    good: bool
    says: str


def examine(home: Path) -> list[Finding]:
    """All findings; the list ends early where nothing further can be looked at."""
    findings: list[Finding] = []
    try:
        for finding in _examine(home):
            findings.append(finding)
    except FacadeError as error:
        findings.append(Finding(False, str(error)))
    return findings


def _examine(home: Path) -> Iterator[Finding]:
    site = Site.load(home)
    yield Finding(True, "keys and node.toml are there, and private")
    days = identity.days_left(site.certificate)
    yield Finding(days > 0, f"the certificate is good for {days:.0f} days" if days > 0 else "the certificate expired")
    membership = site.membership()
    yield Finding(True, f"epoch {membership.epoch} of '{membership.federation}', signed by a known admin")
    for member in membership.members:
        left = identity.days_left(member.certificate)
        if left < _FEW_DAYS:
            yield Finding(left > 0, f"the certificate of {member.id} is good for {left:.0f} more days")
    yield from _peers(site, membership)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        scene = Scene.of(site, membership)
    images = sum(len(rows) for rows in scene.shard.data.rows)
    yield Finding(True, f"the experiment and the classes agree with this site's data ({images} training samples)")
    yield from (Finding(True, f"note: {warning.message}") for warning in said)
    yield _disk(site, scene)


def _disk(site: Site, scene: Scene) -> Finding:
    state = scene.setup.algorithm.init(scene.shard)
    needed = row_bytes(state) * (4 + scene.membership.limits.window)
    free = shutil.disk_usage(site.home).free
    return Finding(free > needed, f"disk: about {needed / 1e6:.1f} MB are needed, {free / 1e6:.0f} MB are free")


def _peers(site: Site, membership: Membership) -> Iterator[Finding]:
    """Call every peer once."""
    number = membership.number(site.settings.id) or 0
    request = Request(Kind.PROBE, membership.digest, number, membership.first_round)
    for member in membership.members:
        if member.id == site.settings.id:
            continue
        link = Link(Credentials(site.tls_key, site.certificate), member, membership.limits.chunk)
        began = time.monotonic()
        try:
            reply = link.call(request, 5.0)
        except (UnreachableError, RefusedError) as error:
            yield Finding(False, f"{member.id} at {member.address} does not answer ({error})")
            continue
        finally:
            link.close()
        if reply.status is Status.REFUSED:
            why = reply.reason.word
            if reply.reason is Reason.OTHER_MEMBERSHIP:
                why = f"its list is {reply.digest.hex()[:16]}, ours {membership.digest.hex()[:16]}"
            yield Finding(False, f"{member.id} refuses this site: {why}")
        else:
            yield Finding(True, f"{member.id} answers in {1000 * (time.monotonic() - began):.0f} ms")
