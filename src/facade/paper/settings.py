"""The paper's experiments, and the stated reductions under which they finish in minutes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from facade.experiment.config import Experiment
from facade.sweep.jobs import Job, directory_name

RIVALS = ("el", "dac", "deprl", "facade")


@dataclass(frozen=True)
class Setting:
    """How the paper ran one data set."""

    source: str
    model: str
    rounds: int
    steps: int
    warmup: int
    seeds: tuple[int, ...]
    rates: dict[str, float] = field(hash=False)
    """Learning rate per algorithm; dpsgd and local take EL's, ifca FACADE's."""

    def rate(self, algorithm: str) -> float:
        """The algorithm's learning rate."""
        return self.rates[{"dpsgd": "el", "local": "el", "ifca": "facade"}.get(algorithm, algorithm)]


CIFAR = Setting(
    "cifar10", "gn-lenet", 1200, 10, 10, (1, 2, 3, 4), {"el": 0.05, "dac": 0.005, "deprl": 0.01, "facade": 0.01}
)
IMAGENETTE = Setting(
    "imagenette", "gn-lenet", 800, 10, 0, (1, 2, 3, 4), {"el": 0.001, "dac": 0.001, "deprl": 0.0005, "facade": 0.0003}
)
FLICKR = Setting(
    "flickr-mammals", "resnet8", 1200, 40, 200, (1, 2, 3), {"el": 0.1, "dac": 0.3, "deprl": 0.1, "facade": 0.3}
)
EVERY = 80


@dataclass(frozen=True)
class Part:
    """Runs of a study that stand beside each other: the same data, several algorithms or k."""

    setting: Setting
    clusters: str
    skew: str = "rotate"
    algorithms: tuple[str, ...] = RIVALS
    heads: tuple[int, ...] = ()
    """Values of k; empty: one head per cluster."""

    @property
    def title(self) -> str:
        """What the part is called in a figure."""
        kind = "" if self.skew == "rotate" else f", {self.skew}"
        return f"{self.setting.source} {self.clusters}{kind}"


@dataclass(frozen=True)
class Scale:
    """How much of the paper's effort to spend."""

    quick: bool = False
    seeds: tuple[int, ...] = ()
    """Empty: the paper's; in a quick run seed 1."""
    rounds: int | None = None
    """None: the paper's; in a quick run QUICK_ROUNDS."""
    data: Path = Path("data")

    def seeds_of(self, part: Part) -> tuple[int, ...]:
        """The seeds to run."""
        return self.seeds or ((1,) if self.quick else part.setting.seeds)

    def rounds_of(self, part: Part) -> int:
        """The rounds to run."""
        return self.rounds or (QUICK_ROUNDS if self.quick else part.setting.rounds)

    def note(self, parts: tuple[Part, ...]) -> str:
        """What was changed, to be written on the figure; empty for the paper's own effort."""
        own = all((self.rounds_of(p), self.seeds_of(p)) == (p.setting.rounds, p.setting.seeds) for p in parts)
        if not parts or (own and not self.quick):
            return ""
        planned = {part.setting.source: (self.rounds_of(part), part.setting.rounds) for part in parts}
        rounds = " and ".join(dict.fromkeys(f"{ours} of {theirs}" for ours, theirs in planned.values())) + " rounds"
        seeds = f"seed{'s' if len(self.seeds_of(parts[0])) > 1 else ''} {', '.join(map(str, self.seeds_of(parts[0])))}"
        if not self.quick:
            return f"CHANGED: {rounds}, {seeds}"
        instead = " and ".join(dict.fromkeys(part.setting.source for part in parts))
        colour = ", turned instead of tinted" if any(part.skew == "colour" for part in parts) else ""
        return f"QUICK: digits and an mlp for {instead}{colour}; {rounds}, {seeds}. Not comparable with the paper"


QUICK_ROUNDS = 60
QUICK_TARGET = 0.85
_QUICK_GROUPS = [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


def experiment(part: Part, algorithm: str, heads: int | None, seed: int, scale: Scale) -> Experiment:
    """One run of a part. A run that is shorter than the paper's is evaluated more often, some 15 times, and warms up
    for a sixth of its rounds at the most."""
    setting, rounds = part.setting, scale.rounds_of(part)
    share = min(1.0, rounds / setting.rounds)
    warmup = setting.warmup if share == 1 else min(setting.warmup, rounds // 6)
    clusters = len(part.clusters.split(":"))
    described: dict[str, Any] = {
        "name": f"{setting.source}{'' if part.skew == 'rotate' else '-' + part.skew}-{part.clusters.replace(':', '-')}",
        "seed": seed,
        "data": {"source": setting.source, "clusters": part.clusters, "skew": part.skew, "root": str(scale.data)},
        "model": {"name": setting.model, "local": []},
        "algorithm": {"name": algorithm, "heads": heads or clusters, "warmup": warmup, "seeding": "none"},
        "training": {"rounds": rounds, "steps": setting.steps, "batch": 8, "lr": setting.rate(algorithm)},
        "evaluation": {"every": EVERY if share == 1 else max(1, rounds // 15)},
    }
    if algorithm == "dac":  # tested after its last round, and after an exchange as well
        described["algorithm"]["all_reduce"] = True
    if scale.quick:
        described = _reduced(described, part)
    if algorithm == "deprl":  # as much work as the others, and fairer than one step: see the reproduction
        described["algorithm"]["core_steps"] = described["training"]["steps"]
    return Experiment.of(described)


def _reduced(described: dict[str, Any], part: Part) -> dict[str, Any]:
    """The same question asked of digits and a small model."""
    data = described["data"] | {"source": "digits"}
    if part.skew == "colour":  # digits are gray: clusters are turned instead
        data["skew"] = "rotate"
    if part.skew == "labels":
        data["groups"] = _QUICK_GROUPS
    training = described["training"] | {"lr": 0.05, "steps": 10}
    return (
        described
        | {"name": f"quick-{described['name']}", "data": data, "model": {"name": "mlp", "local": []}}
        | {"training": training}
    )


def jobs_of(parts: tuple[Part, ...], scale: Scale, out: Path) -> dict[Part, list[Job]]:
    """The runs of every part. Parts and studies that need the same run share it: its directory's name
    follows from what it computes."""
    jobs: dict[Part, list[Job]] = {}
    for part in parts:
        for algorithm in part.algorithms:
            for heads in (part.heads or (None,)) if algorithm == "facade" else (None,):
                for seed in scale.seeds_of(part):
                    described = experiment(part, algorithm, heads, seed, scale)
                    job = Job(described, out / "runs" / directory_name(described), (f"algorithm.name={algorithm}",))
                    jobs.setdefault(part, []).append(job)
    return jobs
