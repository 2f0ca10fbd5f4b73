"""The reproduction of the paper's main experiment: which runs, in which order, and what they must show.

No run is left out and no seed is picked: what to compute follows from this file and, where it says so,
from runs computed before.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from facade.analysis.statistics import Numbers, numbers, settles, tested
from facade.experiment.config import Experiment
from facade.paper.settings import CIFAR, Part, Scale, experiment
from facade.paper.study import as_compared
from facade.runs.history import History, load
from facade.sweep.jobs import directory_name

SETTLING_ROUNDS = 80
SETTLING_SEEDS = (1, 2, 3, 4, 5)
SETTLING_IMAGES = 1000
"""Of each test set; these runs ask who chooses which head, accuracy is by the way."""
STEPS_ROUNDS = 200
"""How long the two kinds of DePRL are compared."""
ARTEFACT_ROUNDS = 320
CAUSE_ROUNDS = 120
"""How long mixtures of the artefact's settings and the paper's have to settle; plain heads took 22 to 54 rounds."""
HEADS = (1, 2, 3, 5)
HEADS_ROUNDS = 200
"""How long different numbers of heads are compared."""

PLAIN, SEEDED = "algorithm.seeding=none", "algorithm.seeding=farthest"


@dataclass(frozen=True)
class Run:
    """One run of the reproduction."""

    stage: str
    """settling, full, steps, artefact, cause or heads: the question it belongs to."""
    part: Part
    label: str
    """What tables call it."""
    experiment: Experiment

    @property
    def name(self) -> str:
        """The name of its directory."""
        return directory_name(self.experiment)


class KeptRuns:
    """Runs whose facts are kept in a directory. They are known by what they computed: names may be older than
    a setting that experiments have today."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._hashes: dict[Path, str] = {}
        self._histories: dict[str, History] = {}

    def get(self, run: Run) -> History | None:
        """What the run found; None if it is not here yet."""
        wanted = run.experiment.hash
        if wanted not in self._histories:
            self._read_hashes()
            path = next((path for path, hash in self._hashes.items() if hash == wanted), None)
            if path is None:
                return None
            self._histories[wanted] = load(path)
        return self._histories[wanted]

    def _read_hashes(self) -> None:
        for path in sorted(self.directory.glob("*/result.json")):
            if path.parent not in self._hashes:
                self._hashes[path.parent] = Experiment.load(path.parent / "experiment.toml").hash


def plan(scale: Scale, kept: KeptRuns) -> list[Run]:
    """All runs in the order in which they are computed, as far as it is known by now: which DePRL runs
    at full length, and what else is asked where plain heads do not settle, follows from runs that are kept."""
    fair, wide, thirds = (Part(CIFAR, ratio) for ratio in ("16:16", "24:8", "20:10:2"))
    skewed = Part(CIFAR, "30:2")
    runs = [
        _settling(part, seeding, seed, scale)
        for part in (skewed, fair, thirds)
        for seeding in (PLAIN, SEEDED)
        for seed in ((1,) if scale.quick else SETTLING_SEEDS)
    ]
    runs += _published(skewed, scale, kept)
    runs += [_full(skewed, "FACADE, seeded", "facade", scale, SEEDED), _full(skewed, "EL", "el", scale)]
    runs += _deprl(skewed, scale, kept)
    runs += [_full(skewed, "DAC", "dac", scale), _full(skewed, "alone", "local", scale)]
    for part in (fair, wide):
        runs.append(_full(part, "FACADE, seeded", "facade", scale, SEEDED))
        runs += _published(part, scale, kept)
        runs.append(_full(part, "EL", "el", scale))
    return [*runs, *_artefact(skewed, scale, kept), *_heads(thirds, scale)]


def _settling(part: Part, seeding: str, seed: int, scale: Scale) -> Run:
    changed = experiment(part, "facade", None, seed, scale).with_(
        seeding, f"training.rounds={SETTLING_ROUNDS}", f"evaluation.every={SETTLING_ROUNDS}",
        f"evaluation.images={SETTLING_IMAGES}", "algorithm.warmup=10",
    )  # fmt: skip
    return Run("settling", part, "seeded" if seeding == SEEDED else "plain", changed)


def _full(part: Part, label: str, algorithm: str, scale: Scale, *changes: str, seed: int = 1) -> Run:
    return Run("full", part, label, experiment(part, algorithm, None, seed, scale).with_(*changes))


def _published(part: Part, scale: Scale, kept: KeptRuns) -> list[Run]:
    """FACADE as published; where seed 1 does not settle, seed 2 as well."""
    first = _full(part, "FACADE, as published", "facade", scale, PLAIN)
    history = kept.get(first)
    if history is None or settles(history):
        return [first]
    return [first, _full(part, "FACADE, as published, seed 2", "facade", scale, PLAIN, seed=2)]


def _deprl(part: Part, scale: Scale, kept: KeptRuns) -> list[Run]:
    """One core step a round, as described, and as many as head steps; the fairer of the two at full length."""
    full = experiment(part, "deprl", None, 1, scale)
    rounds = min(STEPS_ROUNDS, full.training.rounds)
    short = [
        Run("steps", part, f"core_steps = {steps}", changed)
        for steps in (1, full.training.steps)
        for changed in [
            full.with_(
                f"algorithm.core_steps={steps}", f"training.rounds={rounds}", f"evaluation.every={rounds}"
            )
        ]
    ]  # fmt: skip
    histories = [kept.get(run) for run in short]
    if any(history is None for history in histories):
        return short
    fair = [max(state["fair_accuracy"] for state in _states(history)) for history in histories if history is not None]
    steps = short[fair.index(max(fair))].experiment.algorithm["core_steps"]
    return [*short, _full(part, "DePRL", "deprl", scale, f"algorithm.core_steps={steps}")]


def _artefact(part: Part, scale: Scale, kept: KeptRuns) -> list[Run]:
    """FACADE and EL as the published artefact computes them, for as long as it takes to see what that changes; where
    FACADE does not settle that way, seed 2 as well, and which of the settings it comes from."""
    first = _as_artefact(part, "FACADE, the artefact", "facade", scale)
    history, more = kept.get(first), []
    if history is not None and not settles(history):
        more = [*_causes(part, scale), _as_artefact(part, "FACADE, the artefact, seed 2", "facade", scale, "seed=2")]
    return [first, *more, _as_artefact(part, "EL, the artefact", "el", scale, "data.validation=0.1")]


def _as_artefact(part: Part, label: str, algorithm: str, scale: Scale, *changes: str) -> Run:
    """One of its runs. Testing every head costs k times as much: it is done half as often."""
    full = experiment(part, algorithm, None, 1, scale)
    rounds = min(ARTEFACT_ROUNDS, full.training.rounds)
    changes = (f"training.rounds={rounds}", f"evaluation.every={2 * full.evaluation.every}", *changes)
    return Run("artefact", part, label, Experiment.of(full.model_dump(), changes, "artefact"))


CAUSES: dict[str, tuple[str, ...]] = {
    "scoring": ("algorithm.scoring=independent",),
    "own head": ("algorithm.own_head=always",),
    "start": ("training.init=per-node", "data.partition=shuffled"),
}
"""The artefact's settings that reach the training of FACADE, in three groups."""
MIXTURES = (("scoring",), ("own head",), ("start",), ("own head", "start"))
"""Each alone, and those together that alone did not keep heads from settling."""


def _causes(part: Part, scale: Scale) -> list[Run]:
    """FACADE with some of the artefact's settings and the paper's otherwise."""
    rounds = min(CAUSE_ROUNDS, scale.rounds_of(part))
    short = _settling(part, PLAIN, 1, scale).experiment.with_(f"training.rounds={rounds}", f"evaluation.every={rounds}")
    mixtures = []
    for names in MIXTURES:
        changed = short.with_(*(change for name in names for change in CAUSES[name]))
        mixtures.append(Run("cause", part, f"FACADE, the artefact's {' and '.join(names)}", changed))
    return mixtures


def _heads(part: Part, scale: Scale) -> list[Run]:
    """FACADE as published with fewer and with more heads than there are clusters."""
    runs = []
    for k in HEADS:
        full = experiment(part, "facade", k, 1, scale)
        rounds = min(HEADS_ROUNDS, full.training.rounds)
        short = full.with_(PLAIN, f"training.rounds={rounds}", f"evaluation.every={rounds}")
        runs.append(Run("heads", part, f"k = {k}", short))
    return runs


# What the runs must show

_BASELINES = ("EL", "DePRL", "DAC", "alone")


@dataclass(frozen=True)
class Claim:
    """A difference that the paper's result rests on, in percentage points."""

    text: str
    least: float
    published: float
    ours: float | None = None
    """None: not known yet."""

    @property
    def state(self) -> str:
        """holds, fails or open."""
        if self.ours is None:
            return "open"
        return "holds" if self.ours >= self.least else "fails"


def claims(runs: Iterable[Run], kept: KeptRuns) -> list[Claim]:
    """Every claim for every FACADE run that settled; those that fail first, then those still open."""
    full = [run for run in runs if run.stage == "full"]
    every_claim = [claim for run in full if run.label.startswith("FACADE") for claim in _claims_of(run, full, kept)]
    ratio = "30:2"
    el = _numbers(next((run for run in full if run.label == "EL" and run.part.clusters == ratio), None), kept)
    every_claim.append(
        Claim(f"{ratio}: EL's majority above its minority", 25, 33.22, _points(el, "cluster_0", el, "cluster_1"))
    )
    order = ["fails", "open", "holds"]
    return sorted(every_claim, key=lambda claim: order.index(claim.state))


def _claims_of(run: Run, full: list[Run], kept: KeptRuns) -> list[Claim]:
    history = kept.get(run)
    if history is not None and not settles(history):
        return []
    ours, who = _numbers(run, kept), f"{run.part.clusters}, {run.label}"
    others = [other for other in full if other.part == run.part and not other.label.startswith("FACADE")]
    el = [kept.get(other) for other in others if other.label == "EL"]
    if run.experiment.seed != 1:
        who += " (against seed 1 of the others)"
    if run.part.clusters == "16:16":
        return [Claim(f"{who}: all nodes above EL's", 2, 5.64, _above(ours, el, "all"))]
    if run.part.clusters != "30:2":
        return []
    # Which DePRL there is, is known last.
    every: list[History | None] = [kept.get(other) for other in others] if len(others) == len(_BASELINES) else [None]
    return [
        Claim(f"{who}: minority above every baseline's", 4, 7.40, _above(ours, every, "cluster_1")),
        Claim(f"{who}: minority above EL's", 15, 21.19, _above(ours, el, "cluster_1")),
        Claim(f"{who}: fair accuracy above every baseline's", 0, 4.94, _above(ours, every, "fair_accuracy")),
    ]


def _numbers(run: Run | None, kept: KeptRuns) -> Numbers | None:
    history = None if run is None else kept.get(run)
    return None if history is None else numbers(as_compared(history))


def _states(history: History) -> list[Numbers]:
    """The numbers of a run as its last round left it, and after the final exchange if there was one."""
    return [tested(evaluation, history.cluster) for evaluation in (history.evaluations[-1], history.final)]


def _points(one: Numbers | None, name: str, other: Numbers | None, other_name: str) -> float | None:
    return None if one is None or other is None else 100 * (one[name] - other[other_name])


def _above(ours: Numbers | None, baselines: list[History | None], name: str) -> float | None:
    """Points above the best of the baselines, each at its better: before or after its final exchange. None while
    one of them is not known."""
    histories = [history for history in baselines if history is not None]
    if ours is None or len(histories) < len(baselines):
        return None
    return 100 * (ours[name] - max(state[name] for history in histories for state in _states(history)))
