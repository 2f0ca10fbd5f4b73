"""The members that a site's own node.toml has it ignore: it neither hears nor serves them, whatever a list says."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from facade.errors import ExperimentError
from facade.peers.node.journal import Journal
from facade.peers.protocol.headers import Reply, Request
from facade.peers.protocol.refusals import Reason, RefusedError
from facade.peers.protocol.transport import PeerLinks
from facade.peers.trust.membership import Member
from facade.peers.trust.site import Settings, Site


class IgnoredMembers:
    """`ignore` of node.toml, looked at again whenever somebody asks: a change counts from the next call on."""

    def __init__(self, site: Site, journal: Journal) -> None:
        self._site = site
        self._journal = journal
        self._ids = frozenset(site.settings.ignore)
        self._seen = self._written()
        self._lock = threading.Lock()
        if self._ids:
            self._journal.write("ignoring", peers=sorted(self._ids))

    def has(self, id: str) -> bool:
        """Whether a member is ignored."""
        self._look()
        return id in self._ids

    def _look(self) -> None:
        """Take the ids of a node.toml that was changed. One that cannot be used is named in the log, and changes
        nothing."""
        written = self._written()
        with self._lock:
            if written == self._seen:
                return
            self._seen = written
            try:
                ids = frozenset(Settings.load(self._site.home).of_study(self._site.study.name).ignore)
            except ExperimentError as error:
                self._journal.write("settings-refused", says=str(error))
                return
            if ids != self._ids:
                self._ids = ids
                self._journal.write("ignoring", peers=sorted(ids))

    def _written(self) -> tuple[int, int, int]:
        """What tells one writing of node.toml from another; zeros if it is not there."""
        try:
            status = (self._site.home / "node.toml").stat()
        except OSError:
            return 0, 0, 0
        return status.st_mtime_ns, status.st_size, status.st_ino


@dataclass(frozen=True)
class UnignoredLinks:
    """The ways to all peers but the ignored ones: a call to one of those is refused here, and never made."""

    links: PeerLinks
    ignored: IgnoredMembers

    def to(self, peer: Member) -> UnignoredLink:
        return UnignoredLink(self, peer)

    def close(self) -> None:
        self.links.close()


@dataclass(frozen=True)
class UnignoredLink:
    """The way to one peer, as long as it is not ignored."""

    links: UnignoredLinks
    peer: Member

    def call(self, request: Request, seconds: float) -> Reply:
        if self.links.ignored.has(self.peer.id):
            raise RefusedError(Reason.IGNORED, "node.toml has this site ignore it")
        return self.links.links.to(self.peer).call(request, seconds)
