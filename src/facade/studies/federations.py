"""The study of real federations: whether FACADE serves every site of land mines, hospitals and picture domains better
than training alone and than EL, all of them tuned alike."""

from __future__ import annotations

from typing import Any, NamedTuple

from facade.studies.kept_lines import Case
from facade.studies.methods import METHODS, method

SPLITS = tuple(range(1, 11))
FIVE_SPLITS = SPLITS[:5]
FEW_SPLITS = SPLITS[:3]
"""Seeds: each divides every site's samples differently."""


class RealFederation(NamedTuple):
    """A federation, and how its nodes train whatever the method."""

    settings: dict[str, Any]
    heads: int
    rates: tuple[float, ...]
    """The learning rates among which every method chooses by validation samples."""
    splits: tuple[int, ...]
    groups: tuple[str, ...]
    """What the page calls its clusters; where there are none, its sites."""
    methods: tuple[str, ...]
    """Those of METHODS that are compared."""


_NATURAL: dict[str, Any] = {"data.skew": "none", "data.partition": "natural"}
_ROWS: dict[str, Any] = _NATURAL | {"model.name": "mlp", "training.batch": 16}
_LANDMINE: dict[str, Any] = _ROWS | {
    "data.source": "landmine", "data.clusters": "15:14", "data.test_fraction": 0.5, "data.validation": 0.2,
    "training.rounds": 100, "training.loss": "balanced",
}  # fmt: skip
_LANDMINE_RATES = (0.1, 0.3, 1.0)
_GROUND = ("foliated", "bare")
_OFFICE = "6:7:1:2"
_DOMAINS = ("amazon", "caltech", "dslr", "webcam")

_FOUR = ("alone", "EL", "DePRL", "farthest")

FEDERATIONS: dict[str, RealFederation] = {
    "landmine": RealFederation(
        _LANDMINE | {"training.weight_decay": 0.01}, 2, _LANDMINE_RATES, SPLITS, _GROUND, tuple(METHODS)
    ),
    "landmine, no weight decay": RealFederation(
        _LANDMINE, 2, _LANDMINE_RATES, FIVE_SPLITS, _GROUND, ("alone", "EL", "farthest")
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
            "data.validation": 0.15, "model.name": "gn-lenet", "training.rounds": 100,
        },
        2,
        (0.003, 0.01, 0.03),
        FEW_SPLITS,
        _DOMAINS,
        _FOUR,
    ),
    "pacs": RealFederation(
        _NATURAL
        | {
            "data.source": "pacs", "data.clusters": "5:6:2:9", "data.test_fraction": 0.2, "data.validation": 0.1,
            "model.name": "gn-lenet", "training.rounds": 100,
        },
        4,
        (0.003, 0.01, 0.03),
        FEW_SPLITS,
        ("art_painting", "cartoon", "photo", "sketch"),
        _FOUR,
    ),
}  # fmt: skip
IMAGES = ("office-caltech10", "pacs")
"""Those whose runs take minutes."""


def cases() -> list[Case]:
    """All runs on rows, which take seconds."""
    return [case for name in FEDERATIONS if name not in IMAGES for case in of_federation(name)]


def image_cases() -> list[Case]:
    """The runs on images, which take hours."""
    return [case for name in IMAGES for case in of_federation(name)]


def of_federation(name: str) -> list[Case]:
    """The runs of a federation: every method with every rate."""
    known = FEDERATIONS[name]
    return [case_of(name, label, rate) for label in known.methods for rate in known.rates]


def case_of(name: str, label: str, rate: float) -> Case:
    """The runs of one method with one rate, one for every split."""
    known = FEDERATIONS[name]
    settings = known.settings | method(label, known.heads) | {"training.lr": rate}
    return Case(name, label, settings, known.splits)
