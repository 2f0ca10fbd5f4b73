"""Who has signed a list, and whether they are enough."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from facade.errors import ExperimentError
from facade.peers.trust import identity
from facade.peers.trust.bounds import MOST_ITEMS
from facade.peers.trust.identity import Ask

_SIGNED = b"facade membership 1\n"


def signature(content: bytes, key: Path, admins: Sequence[str], ask: Ask = identity.cannot_ask) -> dict[str, str]:
    """The signature of an admin under the content of a list, as the file has it. `ask` gives the passphrase of an
    encrypted key."""
    own = identity.load_signing_key(key, ask)
    if identity.public_half(own) not in admins:
        raise ExperimentError(f"{key} is not the key of an admin of this federation")
    return {"admin": identity.public_half(own), "signature": own.sign(_SIGNED + content).hex()}


def good_signatures(written: Any, content: bytes, admins: Iterable[str]) -> dict[str, str]:
    """Signatures by admin, of those named by the list, each once; what is no good signature is left out."""
    if not isinstance(written, list) or len(written) > MOST_ITEMS:
        raise ValueError(f"signatures must be a list of at most {MOST_ITEMS}")
    good: dict[str, str] = {}
    for entry in written:
        admin, signed = (entry.get(key) for key in ("admin", "signature")) if isinstance(entry, dict) else (None, None)
        if not (isinstance(admin, str) and isinstance(signed, str)):
            raise ValueError("a signature must have an admin and a signature, both texts")
        if admin in admins and identity.verify(admin, signed, _SIGNED + content):
            good[admin] = signed
    return good


def check_signers(path: Path, signers: Iterable[str], pinned: Sequence[str], needed: int) -> None:
    """ExperimentError unless so many of the pinned admins have signed the list of a file."""
    known = set(signers) & set(pinned)
    if not known:
        raise ExperimentError(
            f"{path} is not signed by an admin that this site knows ({', '.join(k[:16] for k in pinned) or 'none'});"
            " if the admin has changed, change admins in node.toml"
        )
    if len(known) < needed:
        raise ExperimentError(
            f"{path} is signed by {len(known)} of the admins that this site knows"
            f" ({', '.join(k[:16] for k in sorted(known))}), and {needed} must have signed; have another one sign it:"
            " facade network sign"
        )
