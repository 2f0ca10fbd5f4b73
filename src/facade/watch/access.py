"""Whom the page's server answers. A page of somebody else's, open in the same browser, must not read it: not by a name
that it has made to point here, not by a request of its own, and not without the token where there is one."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.message import Message
from http import HTTPStatus
from pathlib import Path
from shlex import quote
from typing import NamedTuple

from facade.errors import ExperimentError
from facade.files import store

_SHORTEST = 32
"""Letters of a token."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")


class Listen(NamedTuple):
    """Where to listen."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Listen:
        """HOST:PORT, an IPv6 address in brackets."""
        host, colon, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not colon or not host or not port.isdecimal() or int(port) > 65535:
            raise ExperimentError(
                f"facade watch --listen {text}: expected HOST:PORT, such as 127.0.0.1:8765 or [::1]:8765"
            )
        return cls(host, int(port))

    @property
    def is_loopback(self) -> bool:
        """Whether nobody but this machine can reach it."""
        if self.host == "localhost":
            return True
        return (address := _address(self.host)) is not None and address.is_loopback

    @property
    def is_any(self) -> bool:
        """Whether it is every address of this machine."""
        return (address := _address(self.host)) is not None and address.is_unspecified


def new_token() -> str:
    """256 bits that nobody can guess."""
    return secrets.token_urlsafe(32)


def kept_token(path: Path) -> str:
    """The token of a private file, which is made if there is none."""
    if not path.exists():
        store.replace(path, f"{new_token()}\n".encode(), store.PRIVATE)
    try:
        mode, token = path.stat().st_mode, path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ExperimentError(f"facade watch --token-file {path} cannot be read ({error}); give another one") from None
    if mode & 0o077:
        raise ExperimentError(f"{path} can be read by others than its owner; run: chmod 600 {quote(str(path))}")
    if len(token) < _SHORTEST:
        raise ExperimentError(f"{path} holds {len(token)} letters, a token has at least {_SHORTEST}; remove the file")
    return token


class Refusal(NamedTuple):
    """Why a request is not answered."""

    status: HTTPStatus
    sentence: str


@dataclass(frozen=True)
class Access:
    """What a request must have."""

    listen: Listen
    token: str = field(default="", repr=False)
    """Empty: none is asked for."""

    @property
    def cookie(self) -> str:
        """Its name; browsers do not tell ports apart."""
        return f"facade-watch-{self.listen.port}"

    def refusal(self, headers: Message, query: Mapping[str, list[str]]) -> Refusal | None:
        """Why a request is refused; None if it is answered."""
        hosts, origins = headers.get_all("Host", []), headers.get_all("Origin", [])
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            return Refusal(HTTPStatus.FORBIDDEN, "this server is not called by that name; use the address it printed")
        if any(origin.lower() != f"http://{hosts[0].lower()}" for origin in origins):
            return Refusal(HTTPStatus.FORBIDDEN, "another page may not read this one")
        if headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin") and not _opens_page(headers):
            return Refusal(HTTPStatus.FORBIDDEN, "another page may not load this one")
        if self.token and not any(self._is_token(given) for given in [*self._kept(headers), *query.get("token", [])]):
            sentence = "the token is missing or wrong; open the address that facade watch has printed"
            return Refusal(HTTPStatus.FORBIDDEN, sentence)
        return None

    def _is_ours(self, host: str) -> bool:
        """Whether a Host header names this server. The port does not count: a tunnel may have another one."""
        name, colon, port = host.lower().rpartition(":")
        name = name if colon and port.isdecimal() else host.lower()
        name = name.removeprefix("[").removesuffix("]")
        if self.listen.is_any:  # by an address, no other page can have its own name point here
            return _address(name) is not None or name in ("localhost", *_own_names())
        return name == self.listen.host.lower() or (self.listen.is_loopback and name in LOOPBACK)

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.token.encode())

    def _kept(self, headers: Message) -> list[str]:
        """The tokens that a browser has kept."""
        pairs = (pair.strip().partition("=") for line in headers.get_all("Cookie", []) for pair in line.split(";"))
        return [value for name, _, value in pairs if name == self.cookie]


def _opens_page(headers: Message) -> bool:
    """Whether somebody followed a link to the page; nothing of it goes to where they came from."""
    return headers.get("Sec-Fetch-Mode") == "navigate" and headers.get("Sec-Fetch-Dest") == "document"


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _own_names() -> set[str]:
    return {socket.gethostname().lower(), socket.getfqdn().lower()}
