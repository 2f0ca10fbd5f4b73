"""What a site has at the end: its final state, and a signed site.json that holds no data and no
weights."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from facade.core import tree
from facade.core.tree import Params
from facade.errors import ExperimentError, first_mistake
from facade.files import seals, store
from facade.peers.after.suspects import Word
from facade.peers.node.ledger import Ledger
from facade.peers.protocol.refusals import Reason
from facade.peers.trust import identity
from facade.peers.trust.membership import Membership
from facade.peers.trust.studies import OUTCOME
from facade.runs.run_directory import RunDirectory
from facade.runs.saved_states import ROWS

if TYPE_CHECKING:
    from facade.experiment.setup import Setup
    from facade.peers.trust.site import Site

_SIGNED = b"facade site 1\n"
MODEL = "model.safetensors"


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
    surroundings: dict[str, str] = field(default_factory=dict)
    """The SHA-256 of what the run depended on beside its own files: node.toml, and code of the site's own."""

    @classmethod
    def make(cls, membership: Membership, setup: Setup, id: str, state: Any, ledger: Ledger) -> Outcome:
        """From the final state [1, ...]."""
        return cls(
            id,
            membership.number(id),
            membership.federation,
            membership.epoch,
            membership.policy,
            setup.experiment.hash,
            tree.digests(state, 1)[0],
            tree.digests(setup.algorithm.model(state), 1)[0],
            ledger.plain(),
        )

    def save(self, directory: RunDirectory, state: Any, setup: Setup) -> None:
        """Write the deployed model and, last of all, the outcome, with the seals of the files that are final."""
        from safetensors.torch import save

        models = setup.algorithm.model(state)
        model = save({k: v.clone().contiguous() for k, v in models.items()})
        store.replace(directory.path / MODEL, model, store.PRIVATE)
        files = {ROWS: directory.mark(ROWS).sha256 or "", MODEL: seals.sha256(model)}
        store.replace(directory.path / OUTCOME, seals.sealed_json(asdict(self), files), store.PRIVATE)

    @classmethod
    def load(cls, run: Path) -> Outcome | None:
        """The outcome of a run that has one; DamagedFileError if it is not as it was written."""
        path = run / OUTCOME
        return cls(**seals.read_json(path).content) if path.exists() else None


def deployed_model(run: Path) -> Params:
    """The model [1, ...] that a finished site deploys; DamagedFileError if its file is not as it was written."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    RunDirectory(run).check_file(MODEL)
    try:
        return load_file(run / MODEL)
    except (OSError, ValueError, SafetensorError) as error:
        raise seals.unreadable(run / MODEL, error) from None


def write_site(site: Site, facts: dict[str, Any]) -> Path:
    """Sign the facts with the site's key and write them to site.json."""
    key = site.signing_key
    signature = key.sign(_SIGNED + identity.canonical(facts)).hex()
    signed = {"site": facts, "signing_key": identity.public_half(key), "signature": signature}
    path = site.run / "site.json"
    store.replace_json(path, signed, store.PRIVATE)
    return path


Count = Annotated[int, Field(ge=0, lt=1 << 53)]


Share = Annotated[float, Field(ge=0, le=1)]
AtLeastZero = Annotated[float, Field(ge=0)]


class Measures(BaseModel):
    """What is measured beside the confusion matrix: values, and the variances of two of them."""

    model_config = ConfigDict(allow_inf_nan=False)

    auc: tuple[Share, AtLeastZero | None] | None
    log_loss: tuple[AtLeastZero, AtLeastZero | None]
    calibration_error: Share


class FinalTest(BaseModel):
    """How a site's model did in the end."""

    confusion: list[list[Count]]
    measures: Measures | None = None
    """None in the files of older versions."""
    choice: int | None = None

    @field_validator("confusion")
    @classmethod
    def _is_square_and_counts_something(cls, confusion: list[list[int]]) -> list[list[int]]:
        if any(len(row) != len(confusion) for row in confusion) or not any(map(sum, confusion)):
            raise ValueError("a row and a column for every class are expected, and something in them")
        return confusion


class Met(BaseModel):
    """How a site met a peer: how often it came, came not in time, and was not used."""

    heard: Count = 0
    late: Count
    missed: Count
    refused: dict[str, Count] = {}
    unused: Count = 0
    unused_at_end: Count = 0

    def word(self, site: str, member: str) -> Word:
        """The same as one site's word about a member. Who does not admit the site, or is ignored, has sent nothing."""
        silent = {reason.word for reason in Reason if not reason.tells_of_message}
        refused = sum(count for reason, count in self.refused.items() if reason not in silent)
        return Word(site, member, self.heard + refused, self.unused + refused, bool(self.unused_at_end))


class SiteFacts(BaseModel):
    """What others read in a site.json."""

    model_config = ConfigDict(allow_inf_nan=False)

    id: str
    federation: str
    experiment_sha256: str = Field(pattern="^[0-9a-f]{64}$")
    algorithm: str
    policy: str
    images: int
    final: FinalTest
    gain: float | None = None
    ledger: dict[str, Met]
    gate_closed: Count = 0
    """How often its guard's last gate closed."""

    @property
    def words(self) -> list[Word]:
        """What the site says of what every peer sent it."""
        return [met.word(self.id, peer) for peer, met in self.ledger.items() if peer != self.id]


def read_site(path: Path, membership: Membership | None = None) -> SiteFacts:
    """The facts of a site.json, its signature checked; with a list, also that a member signed."""
    try:
        written = json.loads(path.read_text())
        key, signature = str(written["signing_key"]), str(written["signature"])
        facts, signed = SiteFacts.model_validate(written["site"]), _SIGNED + identity.canonical(written["site"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        mistake = first_mistake(error) if isinstance(error, ValidationError) else error
        raise ExperimentError(
            f"{path} is not a site.json ({mistake}); a site writes one at the end of its run"
        ) from None
    if not identity.verify(key, signature, signed):
        raise ExperimentError(f"{path}: the signature of '{facts.id}' does not fit; it was changed after it was signed")
    if membership is not None and key not in {m.signing_key for m in membership.members if m.id == facts.id}:
        raise ExperimentError(f"{path}: it is not signed with the key that the membership list gives '{facts.id}'")
    return facts
