"""How calls get from site to site, as the rest of a site sees it. A real site gets `rpc.GrpcTransport`; a test may
hand calls from gate to gate in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from facade.peers.protocol.gate import Gate
from facade.peers.protocol.headers import Reply, Request
from facade.peers.trust.membership import Member


class UnreachableError(Exception):
    """A call brought no reply; `denied` where the other side answered that it does not know the caller."""

    def __init__(self, says: str, denied: bool = False) -> None:
        super().__init__(says)
        self.denied = denied


class PeerLink(Protocol):
    """The way to one peer."""

    def call(self, request: Request, seconds: float) -> Reply:
        """One question, one answer; UnreachableError if none comes, RefusedError if it is no reply."""


class PeerLinks(Protocol):
    """The ways to all peers."""

    def to(self, peer: Member) -> PeerLink:
        """The link to a member of a list."""

    def close(self) -> None:
        """Hang up on everybody."""


class PeerServer(Protocol):
    """What lets peers' calls in."""

    def stop(self) -> None:
        """Let calls under way end; later ones are not answered."""


class Transport(Protocol):
    """Both directions, for one site."""

    def links(self, largest_chunk: int, certificates: Callable[[str], list[str]]) -> PeerLinks:
        """Ways to peers that reply with chunks of so many bytes at most, and that show one of the certificates (PEM)
        which are good now for their id."""

    def serve(self, gate: Gate, callers: Callable[[], list[Member]]) -> PeerServer:
        """Hand calls to a gate; `callers` gives the members that may call at the moment."""
