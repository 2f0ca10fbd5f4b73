"""The algorithms by name. To add one: a file beside this one and a row in ALGORITHMS."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from facade.algorithms.dac import DAC
from facade.algorithms.deprl import DePRL
from facade.algorithms.dpsgd import DPSGD
from facade.algorithms.el import EL
from facade.algorithms.local import Local
from facade.algorithms.seeded_facade import SeededFacade
from facade.core.algorithm import Algorithm


@dataclass(frozen=True)
class NamedAlgorithm:
    """A row of the table: the class and what its name implies elsewhere in an experiment."""

    algorithm: type[Algorithm[Any]]
    implies: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Defaults by section that come with the name."""
    summary: str = ""

    @property
    def says(self) -> str:
        """One line about the algorithm."""
        return self.summary or (self.algorithm.__doc__ or "").splitlines()[0]


ALGORITHMS: dict[str, NamedAlgorithm] = {
    "facade": NamedAlgorithm(SeededFacade),
    "el": NamedAlgorithm(EL),
    "dpsgd": NamedAlgorithm(DPSGD),
    "dac": NamedAlgorithm(DAC),
    "deprl": NamedAlgorithm(DePRL),
    "local": NamedAlgorithm(Local),
    "ifca": NamedAlgorithm(
        SeededFacade,
        {"algorithm": {"split": "all", "seeding": "none"}, "topology": {"name": "complete", "fresh": False}},
        "FACADE with nothing shared but heads, on the complete graph: IFCA without a server.",
    ),
}
