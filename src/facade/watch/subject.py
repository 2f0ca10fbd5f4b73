"""What is watched, as browsers and terminals get it: sections, each of which is sent when it changes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, NamedTuple

from facade.analysis.measures import ACCURACY, MEASURES, Measure
from facade.core.types import Row

Section = dict[str, Any]
MOST_DRAWN = 64
"""Beyond this many nodes, pictures of single nodes become pictures of how many there are."""


class Looked(NamedTuple):
    """What came of a look."""

    changed: bool
    more: bool = False
    """Whether there is more to read at once."""


class Subject(ABC):
    """A run, a site or a network."""

    path: Path
    title: str

    @abstractmethod
    def look(self) -> Looked:
        """Read what was written since the last look."""

    @abstractmethod
    def sections(self) -> dict[str, Section]:
        """What is known of it now, by the names of sections: about, progress, quality, losses, traffic, heads, graph,
        guard, sites and events; those that do not apply are left out."""

    @property
    @abstractmethod
    def quiet(self) -> bool:
        """Whether it is over, so that it need not be looked at often."""


def measure_of(experiment: Row) -> Measure:
    """What an experiment is judged by."""
    return MEASURES.get(experiment.get("evaluation", {}).get("measure", ""), ACCURACY)


def described(measure: Measure) -> Section:
    """A measure, as a page labels it."""
    return {"word": measure.word, "percent": measure.percent, "lower_is_better": measure.lower_is_better}


def signature(path: Path) -> tuple[int, int, int] | None:
    """What changes when a file is written again; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def number(value: float, digits: int = 5) -> float | None:
    """A number for JSON, which has no NaN."""
    return None if value != value else round(float(value), digits)
