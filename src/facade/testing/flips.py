"""One changed bit at a time: whatever it hits, in any file of a run or a site, must be noticed before the file is used,
or change nothing that is used.

A directory is copied once for every place; the copy has one bit flipped and is then used like the original. A use
gives all that it read, in a form that can be compared, so that "harmless" is not a matter of opinion: without an error
or a warning, a changed bit may make no difference to what was read.
"""

from __future__ import annotations

import dataclasses
import random
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from facade.core import tree
from facade.errors import FacadeError
from facade.experiment.config import Experiment
from facade.files import seals
from facade.runs import history
from facade.runs.archive import archive
from facade.runs.result import Result
from facade.runs.run_directory import RunDirectory
from facade.runtimes import local

Use = Callable[[Path], Any]
"""Uses a directory in every way in which its files are used; what it read, to be compared."""
Outcome = Literal["noticed", "harmless", "unnoticed", "crashed"]
"""Crashed: whoever used the directory ended with an error that is no sentence."""


class Place(NamedTuple):
    """One bit."""

    file: str
    """Below the directory."""
    byte: int
    bit: int


@dataclass(frozen=True)
class Flip:
    """What came of a changed bit."""

    place: Place
    outcome: Outcome
    says: str
    """How it was noticed, in the first words of the error or warning; empty if it was not."""

    @property
    def kind(self) -> str:
        """The file's name, without numbers and names of sites."""
        path = Path(self.place.file)
        return f"*{path.suffix}" if path.suffix in (".saved", ".join") or path.stem.isdecimal() else path.name


def places(directory: Path, count: int, seed: int) -> list[Place]:
    """Bits to change: all files get as many, wherever in them."""
    luck = random.Random(seed)
    files = sorted(path for path in directory.rglob("*") if path.is_file() and path.stat().st_size)
    chosen = [files[number % len(files)] for number in range(count)]
    return [
        Place(str(path.relative_to(directory)), luck.randrange(path.stat().st_size), luck.randrange(8))
        for path in chosen
    ]


def flip(path: Path, byte: int, bit: int) -> None:
    """Change one bit of a file."""
    content = bytearray(path.read_bytes())
    content[byte] ^= 1 << bit
    path.write_bytes(content)


def try_flips(directory: Path, use: Use, chosen: Sequence[Place]) -> list[Flip]:
    """What comes of each changed bit, in a copy of its own that is then used. The copies lie where each other lay: what
    was read may tell its path."""
    with tempfile.TemporaryDirectory() as base:
        copy = Path(base) / directory.name

        def used() -> tuple[Any, list[str]]:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                return use(copy), [str(warning.message) for warning in caught]

        shutil.copytree(directory, copy)
        expected, said = used()
        assert not said, f"what nobody changed is complained about: {said}"
        flips = []
        for place in chosen:
            shutil.rmtree(copy)
            shutil.copytree(directory, copy)
            flip(copy / place.file, place.byte, place.bit)
            outcome: Outcome
            try:
                read, said = used()
                outcome = "noticed" if said else "harmless" if read == expected else "unnoticed"
            except FacadeError as error:
                outcome, said = "noticed", [str(error)]
            except Exception as error:  # whatever a damaged file makes of a reader
                outcome, said = "crashed", [f"{type(error).__name__}: {error}"]
            flips.append(Flip(place, outcome, said[0].replace(base, "")[:160] if said else ""))
        return flips


def table(flips: Iterable[Flip]) -> Mapping[str, Mapping[str, int]]:
    """By kind of file, how many bits were changed and what came of them."""
    counts: dict[str, Counter[str]] = {}
    for each in flips:
        counts.setdefault(each.kind, Counter())[each.outcome] += 1
    return counts


def plain(value: Any) -> Any:
    """A value in a form that can be compared: dataclasses as dicts, arrays as lists."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value.tolist() if isinstance(value, np.ndarray) else value


def use_finished_run(directory: Path) -> Any:
    """All that a finished run's readers read: its history, models, rows, environment, and what an archive keeps."""
    past, result = history.load(directory), Result.load(directory)
    files = RunDirectory(directory)
    with tempfile.TemporaryDirectory() as kept:
        archived = {path.name: seals.sha256_of(path) for path in archive(directory, kept).iterdir()}
    return (
        plain(past),
        tree.digests(result.models, result.experiment.n),
        result.summary,
        list(result.rows),
        files.read("environment.json"),
        archived,
    )


def use_stopped_run(directory: Path) -> Any:
    """What a stopped run comes to when it is resumed by its own experiment.toml."""
    experiment = Experiment.load(directory / "experiment.toml")
    result = local.run(experiment, directory, resume=True)
    lasting = {key: value for key, value in result.summary.items() if key != "seconds"}
    environment = RunDirectory(directory).read("environment.json")
    return lasting, list(result.rows), environment, experiment.model_dump()
