"""What a site's run depends on beside its own files: node.toml, which the operator may change, and code of the site's
own. A change of either between a stop and a start is no error, and is never passed over in silence."""

from __future__ import annotations

from collections.abc import Mapping

from facade.experiment.own_code import own_code
from facade.files import seals
from facade.peers.trust.membership import Membership
from facade.peers.trust.site import SETTINGS, Site


def surroundings(site: Site, membership: Membership) -> dict[str, str]:
    """Their SHA-256 by name. The code must have been imported."""
    own = own_code({"experiment": membership.experiment, "data": site.settings.data})
    return {SETTINGS: seals.sha256_of(site.home / SETTINGS), **own}


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Sentences on what is other than it was. What was not written down, or what another list does not name, is
    passed over."""
    return [
        f"{name} is not what it was when this site's run was last written down (SHA-256 {now[name][:16]}...,"
        f" {sha256[:16]}... then); if nobody changed it on purpose, restore it"
        for name, sha256 in before.items()
        if name in now and now[name] != sha256
    ]
