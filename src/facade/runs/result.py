"""What a run leaves: rows, a summary computed from them, and a usable model per node."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from facade.algorithms.seeding.health import MEMORY
from facade.analysis import metrics
from facade.analysis.measures import ACCURACY, MEASURES
from facade.analysis.metrics import Counts
from facade.core import tree
from facade.core.plan import OTHER_PRIOR
from facade.core.tree import Params
from facade.core.types import Row
from facade.data.site_names import site_names
from facade.errors import RunDirectoryError
from facade.experiment.config import Experiment
from facade.experiment.own_code import own_code
from facade.experiment.setup import set_up
from facade.files import seals
from facade.learning.learner import Learner
from facade.runs.environment import CODE, changed_code, environments
from facade.runs.federation_facts import federation_without_samples
from facade.runs.frames import evaluation_frame
from facade.runs.history import moments_of
from facade.runs.honest_nodes import of_honest
from facade.runs.measure_facts import few_values, values_of
from facade.runs.moments import gathered
from facade.runs.run_directory import RunDirectory

if TYPE_CHECKING:
    import pandas

_ALIKE = 0.01
"""Heads whose losses differ by less than this share of them count as alike."""


@dataclass(frozen=True)
class Result:
    """A finished run."""

    experiment: Experiment
    rows: Sequence[Row]
    """What rows.jsonl holds; of a run with a directory they are read when they are asked for."""
    summary: Row
    """Metrics of the final evaluation, traffic, hashes."""
    models: Params
    """[n, ...] the deployed model of every node."""
    learner: Learner
    run_dir: Path | None = None
    cluster: Counts | None = None
    """[n] the cluster of every node, where it is known."""

    def __repr__(self) -> str:
        experiment, summary = self.experiment, self.summary
        by = MEASURES[experiment.evaluation.measure if "measures" in summary else ACCURACY.name]
        if by == ACCURACY:
            values = summary.get("clusters") or [summary["all"]]
        else:
            values = few_values(values_of(summary["measures"][by.name]), by)
        shown = ", ".join("-" if value is None else by.value(value) for value in values)
        where = "" if self.run_dir is None else f", in {self.run_dir}"
        size = f"{self.n} nodes, {experiment.training.rounds} rounds"
        return f"<Result of {experiment.algorithm['name']}: {size}, {by.word} {shown}{where}>"

    @property
    def n(self) -> int:
        """Number of nodes."""
        return len(next(iter(self.models.values())))

    @classmethod
    def load(cls, path: str | Path) -> Result:
        """The finished run that a directory holds. Data are not needed."""
        directory = RunDirectory(Path(path))
        if not directory.finished:
            unfinished = f"an unfinished run; finish it with: {directory.resume_command}"
            raise RunDirectoryError(f"{path} holds {unfinished if directory.started else 'no run'}")
        if not (directory.path / "models.safetensors").exists():
            raise RunDirectoryError(
                f"{path} holds what a run found but not its models; compute it again: facade run"
                f" {quote(f'{path}/experiment.toml')}"
            )
        directory.content("experiment.toml")
        experiment = Experiment.load(directory.path / "experiment.toml")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the run said what it had to say
            here = experiment.with_("runtime.device=cpu")  # whatever the run was computed on
            learner = set_up(here, federation_without_samples(directory.read("federation.json"))).learner
        then, now = environments(directory.read("environment.json"))[-1], own_code(experiment.model_dump())
        for changed in changed_code(then.get(CODE), now):
            warnings.warn(f"the code that {path} was computed with is not what is here now ({changed})", stacklevel=2)
        summary = directory.read("result.json")
        models = _models(directory, summary)
        cluster = directory.read("federation.json")["cluster"]
        known = None if cluster is None else np.array(cluster)
        return cls(experiment, directory.rows, summary, models, learner, directory.path, known)

    def frame(self) -> pandas.DataFrame:
        """A pandas DataFrame with one row per node and evaluation: algorithm, seed, round, final (after the final
        exchange), node, cluster, accuracy, loss and, where there are such, choice and those of validation data."""
        about = {"algorithm": self.experiment.algorithm["name"], "seed": self.experiment.seed}
        return evaluation_frame(self.rows, about, self.cluster)

    def choices(self) -> Mapping[int, Sequence[int]]:
        """The head that every node, attackers included, chose in each round, by round; nothing without heads."""
        if self.run_dir is None:
            moments = gathered(self.rows, self.n)
        else:
            moments = moments_of(RunDirectory(self.run_dir), self.n, self.experiment.attack.nodes)
        return {round: choice.tolist() for round, choice in zip(moments.rounds, moments.choice, strict=False)}

    def model(self, node: int) -> nn.Module:
        """The node's deployed model as a torch module in evaluation mode; it expects inputs
        normalised as in training (`result.learner.inputs.prepare`)."""
        if not 0 <= node < self.n:
            raise IndexError(f"node {node} does not exist; nodes are 0 to {self.n - 1}")
        return self.learner.module(tree.rows(self.models, node))


def _models(directory: RunDirectory, summary: Row) -> Params:
    """The models of a run, which fit its summary: also that of a version before there were seals says their SHA-256."""
    path = directory.path / "models.safetensors"
    directory.check_file(path.name)
    try:
        models = load_file(path)
    except (OSError, ValueError, SafetensorError) as error:
        raise seals.unreadable(path, error) from None
    if path.name not in directory.seals and "model_sha256" in summary:
        n = len(next(iter(models.values())))
        seals.check(path, tree.joint(tree.digests(models, n)), summary["model_sha256"])
    return models


def health_of_heads(last: list[Row]) -> Row:
    """From the notes of the last round: heads that nobody has been heard to use for long, with the round
    since when, and pairs of living heads between which nodes see no difference."""
    if not last or "head_last_heard" not in last[0]:
        return {}
    heard = np.array([row["head_last_heard"] for row in last]).max(0) + 1
    losses = np.array([row["head_losses"] for row in last], dtype=np.float64)  # None, where unscored, becomes NaN
    scored = ~np.isnan(losses).any(0)
    dead = {j: int(heard[j]) + 1 for j in np.nonzero(scored)[0].tolist() if last[0]["round"] - heard[j] >= MEMORY}
    alive = [j for j in np.nonzero(scored)[0].tolist() if j not in dead]
    apart = {(a, b): np.abs(losses[:, a] - losses[:, b]).mean() for a, b in itertools.combinations(alive, 2)}
    alike = [list(pair) for pair, distance in apart.items() if distance < _ALIKE * losses[:, list(pair)].mean()]
    return {"dead_heads": {str(j): since for j, since in dead.items()}, "alike_heads": alike}


def judge(rows: list[Row], cluster: Counts | None, bad: Sequence[int] = (), sites: Sequence[str] | None = None) -> Row:
    """All metrics of one evaluation (its rows in node order), without the nodes `bad`, which attack; `choice` has all
    of them in their places. Where clusters are not known, `sites` has every node's accuracy by its name."""
    honest = list(of_honest(rows, bad))
    nodes = [row["node"] for row in honest]
    confusion = np.array([row["confusion"] for row in honest], dtype=np.int64)
    choice = np.array([row["choice"] for row in honest]) if "choice" in rows[0] else None
    judged = measure(confusion, None if cluster is None else cluster[nodes], choice)
    if cluster is None:
        judged["sites"] = dict(zip(site_names(sites, nodes), metrics.accuracy(confusion).tolist(), strict=True))
    return judged if choice is None else judged | {"choice": [row["choice"] for row in rows]}


def under_other_prior(rows: list[Row], cluster: Counts | None) -> Row:
    """Which prior counts in an evaluation, and the accuracies under the other one; nothing with the plain loss."""
    for other, prior in OTHER_PRIOR.items():
        if f"{other}_confusion" in rows[0]:
            confusion = np.array([row[f"{other}_confusion"] for row in rows], dtype=np.int64)
            measured = measure(confusion, cluster)
            return {"prior": prior} | {f"{other}_{k}": measured[k] for k in ("all", "clusters") if k in measured}
    return {}


def measure(confusion: Counts, cluster: Counts | None, choice: Counts | None = None) -> Row:
    """All metrics of one evaluation: matrices [n, C, C], clusters [n] and chosen heads [n]."""
    nodes = metrics.accuracy(confusion)
    measured: Row = {"all": float(nodes.mean()), "worst_node": float(nodes.min())}
    several = cluster is not None and int(cluster.max()) > 0  # of one cluster, nothing between clusters can be said
    if cluster is not None:
        accuracies = metrics.group_accuracy(confusion, cluster)
        groups = metrics.pooled(confusion, cluster)
        measured |= {"clusters": accuracies.tolist()}
        measured |= {"fair_accuracy": metrics.fair_accuracy(accuracies) if several else None}
        measured |= {name: of(groups) if several else None for name, of in metrics.GROUP_METRICS.items()}
    measured |= {"separated": None, "settled": None, "choice": None}
    if choice is not None:
        heads = {int(j): float(nodes[choice == j].mean()) for j in np.unique(choice)}
        measured |= {"choice": choice.tolist(), "heads": {str(j): share for j, share in heads.items()}}
        measured |= {"worst_head": min(heads.values())}
        if cluster is not None and several:
            measured |= {"separated": metrics.separated(choice, cluster), "settled": metrics.settled(choice, cluster)}
    return measured
