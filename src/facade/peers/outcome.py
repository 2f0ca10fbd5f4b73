"""What a site has at the end: its final state, and a signed site.json that holds no data and no
weights."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from facade import store, tree
from facade.errors import ExperimentError
from facade.peers import identity
from facade.peers.ledger import Ledger
from facade.peers.membership import Membership

if TYPE_CHECKING:
    from facade.peers.site import Site
    from facade.setup import Setup

_SIGNED = b"facade site 1\n"


@dataclass(frozen=True)
class Outcome:
    """The end of a site's run."""

    id: str
    number: int
    federation: str
    epoch: int
    policy: str
    experiment: str
    """SHA-256 of what determines the result."""
    state_sha256: str
    model_sha256: str
    ledger: dict[str, Any]

    @classmethod
    def make(cls, membership: Membership, setup: Setup, id: str, state: Any, ledger: Ledger) -> Outcome:
        """From the final state [1, ...]."""
        return cls(
            id,
            membership.number(id) or 0,
            membership.federation,
            membership.epoch,
            membership.policy,
            setup.experiment.hash,
            tree.digests(state, 1)[0],
            tree.digests(setup.algorithm.model(state), 1)[0],
            ledger.plain(),
        )

    def save(self, run: Path, state: Any, setup: Setup) -> None:
        """Write the deployed model and, last of all, the outcome."""
        from safetensors.torch import save

        models = setup.algorithm.model(state)
        store.replace(run / "model.safetensors", save({k: v.clone().contiguous() for k, v in models.items()}))
        store.replace(run / "outcome.json", (json.dumps(asdict(self), indent=1) + "\n").encode())

    @classmethod
    def load(cls, run: Path) -> Outcome | None:
        """The outcome of a run that has one."""
        path = run / "outcome.json"
        return cls(**json.loads(path.read_text())) if path.exists() else None


def write_site(site: Site, facts: dict[str, Any]) -> Path:
    """Sign the facts with the site's key and write them to site.json."""
    key = identity.load_signing_key(site.home / identity.SIGNING_KEY)
    signature = key.sign(_SIGNED + identity.canonical(facts)).hex()
    signed = {"site": facts, "signing_key": identity.public_half(key), "signature": signature}
    path = site.run / "site.json"
    store.replace(path, (json.dumps(signed, indent=1) + "\n").encode())
    return path


def read_site(path: Path, membership: Membership | None = None) -> dict[str, Any]:
    """The facts of a site.json, its signature checked; with a list, also that a member signed."""
    try:
        written = json.loads(path.read_text())
        facts: dict[str, Any] = written["site"]
        key, signature = str(written["signing_key"]), str(written["signature"])
        confusion, id = facts["final"]["confusion"], facts["id"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ExperimentError(f"{path} is not a site.json ({error}); a site writes one at the end of its run") from None
    if not confusion or not identity.verify(key, signature, _SIGNED + identity.canonical(facts)):
        raise ExperimentError(f"{path}: the signature of '{id}' does not fit; it was changed after it was signed")
    if membership is not None and key not in {m.signing_key for m in membership.members if m.id == id}:
        raise ExperimentError(f"{path}: it is not signed with the key that the membership list gives '{id}'")
    return facts
