"""The study of real federations: whether FACADE serves every site of land mines, hospitals and picture domains better
than training alone and than EL, all of them tuned alike."""

from __future__ import annotations

from typing import Any, NamedTuple

from facade.studies.kept_lines import Case, KeptLines, KeptRun
from facade.studies.methods import METHODS, method
from facade.studies.numbers import average

SPLITS = tuple(range(1, 11))
FIVE_SPLITS = SPLITS[:5]
FEW_SPLITS = SPLITS[:3]
"""Seeds: each divides every site's samples differently."""
TUNING_SPLITS = tuple(range(101, 111))
"""Others, by whose validation samples every method chooses its rate; where a run takes long, by the first alone."""


class Choice(NamedTuple):
    """What a method chooses by validation samples."""

    rate: float
    loss: str

    @property
    def settings(self) -> dict[str, Any]:
        """As an experiment has it."""
        return {"training.lr": self.rate} | ({} if self.loss == "plain" else {"training.loss": self.loss})


class RealFederation(NamedTuple):
    """A federation, and how its nodes train whatever the method."""

    settings: dict[str, Any]
    heads: int
    rates: tuple[float, ...]
    """The learning rates among which every method chooses by validation samples."""
    splits: tuple[int, ...]
    """Those that are read."""
    groups: tuple[str, ...]
    """What the page calls its clusters; where there are none, its sites."""
    methods: tuple[str, ...]
    """Those of METHODS that are compared."""
    judged: str = "farthest"
    """The one that has to show what was asked for."""
    tuning: tuple[int, ...] = TUNING_SPLITS
    """The splits on which rates are chosen."""
    losses: tuple[str, ...] = ("plain",)
    """The losses among which every method chooses as it does among rates."""

    @property
    def choices(self) -> list[Choice]:
        """All that a method chooses from."""
        return [Choice(rate, loss) for loss in self.losses for rate in self.rates]


_NATURAL: dict[str, Any] = {"data.skew": "none", "data.partition": "natural"}
_ROWS: dict[str, Any] = _NATURAL | {"model.name": "mlp", "training.batch": 16}
_LANDMINE: dict[str, Any] = _ROWS | {
    "data.source": "landmine", "data.clusters": "15:14", "data.test_fraction": 0.5, "data.validation": 0.2,
    "training.rounds": 100,
}  # fmt: skip
_LANDMINE_RATES = (0.1, 0.3, 1.0)
_IMAGE_RATES = (0.01, 0.03, 0.1)
_GROUND = ("foliated", "bare")
_OFFICE = "6:7:1:2"
_DOMAINS = ("amazon", "caltech", "dslr", "webcam")

_FOUR = ("alone", "EL", "DePRL", "farthest")

FEDERATIONS: dict[str, RealFederation] = {
    "landmine": RealFederation(
        _LANDMINE | {"training.weight_decay": 0.01},
        2,
        _LANDMINE_RATES,
        SPLITS,
        _GROUND,
        tuple(METHODS),
        judged="whole models",
        losses=("balanced", "plain"),
    ),
    "landmine, no weight decay": RealFederation(
        _LANDMINE, 2, _LANDMINE_RATES, FIVE_SPLITS, _GROUND, ("alone", "EL", "farthest"), losses=("balanced",)
    ),
    "heart-disease": RealFederation(
        _ROWS
        | {
            "data.source": "heart-disease", "data.clusters": "4", "data.test_fraction": 0.4, "data.validation": 0.15,
            "topology.degree": 2, "training.rounds": 60,
        },
        2,
        (0.01, 0.03, 0.1),
        SPLITS,
        ("cleveland", "hungarian", "switzerland", "va"),
        tuple(METHODS),
    ),
    "office-caltech10-surf": RealFederation(
        _ROWS
        | {
            "data.source": "office-caltech10-surf", "data.clusters": _OFFICE, "data.test_fraction": 0.3,
            "data.validation": 0.15, "training.rounds": 60,
        },
        2,
        (0.01, 0.03, 0.1),
        SPLITS,
        _DOMAINS,
        _FOUR,
    ),
    "office-caltech10": RealFederation(
        _NATURAL
        | {
            "data.source": "office-caltech10", "data.clusters": _OFFICE, "data.test_fraction": 0.3,
            "data.validation": 0.15, "data.size": 32, "model.name": "gn-lenet", "training.rounds": 100,
        },
        2,
        _IMAGE_RATES,
        FEW_SPLITS,
        _DOMAINS,
        _FOUR,
        tuning=TUNING_SPLITS[:1],
    ),
    "pacs": RealFederation(
        _NATURAL
        | {
            "data.source": "pacs", "data.clusters": "5:6:2:9", "data.test_fraction": 0.2, "data.validation": 0.1,
            "model.name": "gn-lenet", "training.rounds": 100,
        },
        4,
        _IMAGE_RATES,
        FEW_SPLITS,
        ("art_painting", "cartoon", "photo", "sketch"),
        _FOUR,
        tuning=TUNING_SPLITS[:1],
    ),
}  # fmt: skip
IMAGES = ("office-caltech10", "pacs")
"""Those whose runs take minutes."""


def cases(kept: KeptLines) -> list[Case]:
    """All runs on rows, which take seconds."""
    return [case for name in FEDERATIONS if name not in IMAGES for case in of_federation(kept, name)]


def image_cases(kept: KeptLines) -> list[Case]:
    """The runs on images, which take hours."""
    return [case for name in IMAGES for case in of_federation(kept, name)]


def of_federation(kept: KeptLines, name: str) -> list[Case]:
    """The runs of a federation: every method with every choice, and those that are read of the methods whose choice can
    be told."""
    known = FEDERATIONS[name]
    tried = [case_of(name, label, choice, known.tuning) for label in known.methods for choice in known.choices]
    chosen = {label: choice for label in known.methods if (choice := chosen_of(kept, name, label)) is not None}
    return tried + [case_of(name, label, choice, known.splits) for label, choice in chosen.items()]


def chosen_of(kept: KeptLines, name: str, label: str) -> Choice | None:
    """The choice of a method that is best on the validation samples of all sites, over the splits for that; None as
    long as a run is missing."""
    known = FEDERATIONS[name]
    tried = {choice: kept.runs(case_of(name, label, choice, known.tuning)) for choice in known.choices}
    if any(len(runs) < len(known.tuning) for runs in tried.values()):
        return None
    return max(tried, key=lambda choice: average(map(_validated, tried[choice])))


def _validated(run: KeptRun) -> float:
    """The mean over sites; of a run that diverged nothing is known, and its rate is not to be chosen."""
    return -1.0 if run.diverged else average(value for value in run.validated if value is not None)


def case_of(name: str, label: str, choice: Choice, splits: tuple[int, ...]) -> Case:
    """The runs of one method with one choice, one for every split."""
    known = FEDERATIONS[name]
    settings = known.settings | method(label, known.heads) | choice.settings
    return Case(name, label, settings, splits)
