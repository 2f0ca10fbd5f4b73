"""What a site reads of its own files, in a form that can be compared: to try what one changed bit in any of them does
(`facade.testing.flips`). Nothing is called and nobody is served."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from facade.core import tree
from facade.core.types import Row
from facade.files import seals
from facade.peers.after.audit import audit
from facade.peers.after.outcome import deployed_model
from facade.peers.after.report import compare_sites
from facade.peers.node.journal import lines
from facade.peers.node.node import Node
from facade.peers.protocol.gate import Gate
from facade.peers.protocol.transport import PeerLink, UnreachableError
from facade.peers.trust import identity
from facade.peers.trust.identity import Join
from facade.peers.trust.membership import Member
from facade.peers.trust.site import Site
from facade.runs.run_directory import RunDirectory


@dataclass(frozen=True)
class _Nowhere:
    """A transport whose links reach nobody, and which nobody can call."""

    def serve(self, gate: Gate, callers: Callable[[], list[Member]]) -> _Nowhere:
        return self

    def links(self, largest_chunk: int, certificates: Callable[[str], list[str]]) -> _Nowhere:
        return self

    def to(self, peer: Member) -> PeerLink:
        raise UnreachableError("nowhere")

    def stop(self) -> None:
        pass

    def close(self) -> None:
        pass


def use_site(home: Path) -> Any:
    """All that a site which was stopped goes on from, or a finished one serves: what it is, its lists, state, rows,
    messages and what it recalls; and what its operator and an audit read."""
    events, status = lines(home / "run" / "log.jsonl"), seals.read_json(home / "run" / "status.json").content
    site = Site.load(home)
    node = Node(site, _Nowhere(), listen=_warn_of_refused_lists)
    try:
        outgoing, saved = node.files.outgoing, node.files.checkpoints.newest()
        published = [outgoing.get(round) for round in outgoing.rounds]
        return (
            site.settings.model_dump(),
            [identity.fingerprint(site.certificate), identity.public_half(site.signing_key), site.tls_key],
            asdict(Join.load(home / f"{site.settings.id}.join")),
            [membership.digest for membership in node.followed_lists.epochs.known],
            saved and (saved.round, saved.epoch, saved.ledger, tree.digests(saved.state, 1)),
            None if node.outcome is None else asdict(node.outcome),
            list(node.files.directory.rows),
            [message and message.digest for message in published],
            seals.sha256_of(home / "run" / "recovery.jsonl"),  # written anew from what was read
            events,
            status,
        )
    finally:
        node.close()


def use_finished_site(home: Path) -> Any:
    """What others make of a finished site's files, beside all that it serves."""
    run = home / "run"
    own = use_site(home)
    compared = compare_sites([run / "site.json"], home / "membership.json")
    audited = asdict(audit([run / "log.jsonl"], sorted((run / "epochs").glob("*.json"))))
    return own, compared, audited, tree.digests(deployed_model(run), 1), list(RunDirectory(run).rows)


def _warn_of_refused_lists(event: Row) -> None:
    """What the operator is shown of a list that cannot be used."""
    if event["event"] == "list-refused":
        warnings.warn(event["says"], stacklevel=2)
