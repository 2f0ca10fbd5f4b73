"""What no list may exceed on a site, whoever signed it: of the experiment, estimated before anything is made of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from facade.errors import ExperimentError

if TYPE_CHECKING:
    from facade.experiment.config import Experiment
    from facade.peers.trust.membership import Membership

_MB = 1e6
_OTHER_STATE = 4_096
"""Bytes of a state besides its weights and class sums."""


class Ceilings(BaseModel):
    """[ceilings] of node.toml."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)

    rounds: int = Field(10_000, ge=1)
    """Rounds of a run."""
    seconds: float = Field(86_400.0, gt=0)
    """Any time that a list has this site wait: deadline, floor, grace, linger."""
    samples: int = Field(1_000_000, ge=1)
    """Samples that a round trains on: steps times batch."""
    memory_mb: float = Field(8_192.0, gt=0)
    """Megabytes that states, messages and a batch take in memory, as estimated; the site's own data are not counted."""
    disk_mb: float = Field(20_480.0, gt=0)
    """Megabytes that checkpoints, messages and records take on the disk, as estimated."""
    message_mb: float = Field(1_024.0, gt=0)
    """Megabytes of one message."""


class Needs(NamedTuple):
    """Bytes that a run takes at a site, as estimated."""

    message: float
    memory: float
    disk: float


def refuse_excess(ceilings: Ceilings, membership: Membership, experiment: Experiment) -> None:
    """ExperimentError for a list that exceeds one of a site's ceilings."""
    for ceiling, what, value in _demands(membership, experiment):
        largest = getattr(ceilings, ceiling)
        if value > largest:
            raise ExperimentError(
                f"{what} {value:,.15g} by the list of epoch {membership.epoch}, above this site's ceiling {ceiling} ="
                f" {largest:,.15g}; ask the federation's admin for less, or raise it in node.toml, [ceilings]"
            )


def _demands(membership: Membership, experiment: Experiment) -> Iterator[tuple[str, str, float]]:
    """(ceiling, what it is about, value): cheap ones first, so that nothing is estimated of what is absurd."""
    training = experiment.training
    yield "rounds", "training.rounds is", training.rounds
    for name in ("deadline", "floor", "grace", "linger"):
        yield "seconds", f"limits.{name} is", getattr(membership.limits, name)
    yield "samples", "training.steps times training.batch is", training.steps * training.batch
    needs = estimate(membership, experiment)
    yield "message_mb", "the megabytes of a message are", _rounded(needs.message)
    yield "memory_mb", "the megabytes of memory are about", _rounded(needs.memory)
    yield "disk_mb", "the megabytes on the disk are about", _rounded(needs.disk)


def _rounded(size: float) -> float:
    return math.ceil(10 * size / _MB) / 10


def estimate(membership: Membership, experiment: Experiment) -> Needs:
    """What playing by a list takes. Memory: the state four times (as it was, trained, mixed, written), every message
    of the final exchange twice (as they came, and side by side), and a batch with what its layers keep. Disk: four
    checkpoints, a window of messages, the final model, and the lines about every round."""
    core, head = _model_bytes(membership, experiment)
    heads = _heads(experiment.algorithm)
    moments = 2 if experiment.training.optimiser == "adam" else int(experiment.training.momentum > 0)
    seeds = heads + 4 if experiment.algorithm.get("seeding", "none") != "none" else 0  # each at most as large as a head
    state = (core + heads * head) * (1 + moments) + seeds * head + _OTHER_STATE
    message = core + head
    inputs = math.prod(membership.schema_.shape) * experiment.training.batch * (8 if _is_double(experiment) else 4)
    lines = experiment.training.rounds * (1_000 + 200 * min(membership.n, _heard(experiment, membership.n)))
    memory = 4 * state + 2 * message * membership.n + 16 * inputs
    disk = 4 * state + message * (membership.limits.window + 1) + core + head + lines
    return Needs(message, memory, disk)


def _heads(algorithm: dict[str, Any]) -> int:
    """How many heads a node keeps; 1 for an algorithm that has no such field."""
    heads = algorithm.get("heads", 1)
    most = algorithm.get("max_heads", 1) if heads == "auto" else heads
    return most if isinstance(most, int) else 1


def _heard(experiment: Experiment, n: int) -> int:
    """Peers heard in a round, at most."""
    return experiment.topology.degree if experiment.topology.name in ("regular", "k-out") else n


def _is_double(experiment: Experiment) -> bool:
    return experiment.runtime.dtype == "float64"


def _model_bytes(membership: Membership, experiment: Experiment) -> tuple[float, float]:
    """Bytes of (core, head), of a model whose weights have sizes and no content. (0, 0) for one that cannot be made
    so: what is wrong with it is said where it is made, and of a user's own the site has allowed the code."""
    import torch

    from facade.learning.models import factory
    from facade.learning.torch_modules import named_tensors, under

    schema, named = membership.schema_, experiment.model.head
    make = factory(experiment.model.name, tuple(schema.shape), len(schema.classes))
    try:
        with torch.device("meta"):
            tensors = named_tensors(make())
    except ExperimentError:
        raise
    except Exception:
        return 0.0, 0.0
    whole = experiment.algorithm.get("split") == "all"
    heads = ("*",) if whole else (named,) if isinstance(named, str) else tuple(named)
    width = 8 if _is_double(experiment) else 4
    sizes = {name: width * leaf.numel() for name, leaf in tensors.items()}
    head = sum(size for name, size in sizes.items() if under(name, heads))
    return sum(sizes.values()) - head, head
