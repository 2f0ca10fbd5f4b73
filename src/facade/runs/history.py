"""What the rows of a run say, as arrays. Statistics, tables and contracts look at nothing else, so a
new metric works on old runs."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from facade.analysis.measures import ACCURACY, MEASURES, Measure, recorded
from facade.analysis.metrics import Counts, Floats
from facade.core.plan import OTHER_PRIOR
from facade.core.types import Row
from facade.data.clusters import cluster_sizes
from facade.data.site_names import site_names
from facade.errors import ExperimentError, RunDirectoryError, unknown
from facade.experiment.decisive_settings import decisive_settings
from facade.runs.federation_facts import differing_facts
from facade.runs.honest_nodes import attack_in_words, attackers, honest_nodes, of_honest
from facade.runs.rows import RowsFile
from facade.runs.run_directory import RunDirectory
from facade.runs.run_order import in_order
from facade.runs.survey_facts import SurveyFacts, survey_of
from facade.runs.training_facts import mean_train_loss, training_facts


@dataclass(frozen=True)
class Evaluation:
    """All honest nodes, tested at one moment."""

    round: int
    confusion: Counts
    """[n, C, C] true class by predicted class."""
    choice: Counts | None = None
    """[n] the head each node deploys."""
    validation: Counts | None = None
    """[n, C, C] on validation data."""
    validation_loss: Floats | None = None
    """[n] mean loss on validation data."""
    prior: str | None = None
    """Which prior counts, "flat" or "own"; None with the plain loss."""
    under_other_prior: Counts | None = None
    """[n, C, C] predictions under the one that does not count."""
    beside: Floats | None = None
    """[n, 5] what was measured beside the confusion matrices (`analysis.measures.recorded`); None in older runs."""
    validation_beside: Floats | None = None
    """[n, 5] the same on validation data."""


@dataclass(frozen=True)
class History:
    """A finished run, from its rows alone. Where nodes attack, all of it is of the honest ones: n is their number, and
    `nodes` says which they are."""

    path: Path
    experiment: Row
    """The resolved experiment as nested dicts."""
    classes: list[str]
    cluster: Counts | None
    """[n] ground truth, where it is known."""
    test_of: Counts
    """[n] number of each node's test set."""
    rounds: Counts
    """[R] numbers, from 1, of the rounds that all nodes played; a real peer may have left some out."""
    heard: Floats
    """[R] payload bytes that a node heard in each of them, the mean over nodes."""
    choice: Counts | None
    """[R, n] the head each node chose in each of them."""
    evaluations: list[Evaluation]
    """In the order of rounds, without the final one."""
    final: Evaluation
    heard_finally: float
    """Payload bytes of the final exchange, the mean over nodes."""
    nodes: Counts
    """[n] their numbers in the run, ascending: all, unless some attack."""
    data: Row = field(default_factory=dict)
    """What federation.json says."""
    survey: SurveyFacts | None = None
    """What became of the survey of which nodes look alike, where there was one."""
    learned: bool = True
    """Whether the training loss fell."""
    sealed: bool = False
    """Whether its files have checksums, with which they were compared; those of older versions have none."""
    measure: Measure = ACCURACY
    """What it is judged by."""

    @property
    def clusters(self) -> int:
        """How many clusters the run knows of; 0 where they are not known."""
        return 0 if self.cluster is None else int(self.cluster.max()) + 1

    @property
    def sizes(self) -> list[int]:
        """Nodes per cluster, as data.clusters says; all of them where clusters are not known."""
        return [len(self.nodes)] if self.cluster is None else cluster_sizes(self.experiment["data"]["clusters"])

    @property
    def sites(self) -> list[str]:
        """[n] what the nodes are called."""
        return site_names(self.data.get("sites"), self.nodes.tolist())

    @property
    def named(self) -> bool:
        """Whether nodes have names of their own."""
        return self.data.get("sites") is not None

    @property
    def algorithm(self) -> str:
        """The algorithm's name."""
        return str(self.experiment["algorithm"]["name"])

    @property
    def attack(self) -> str | None:
        """In words, whose accuracies these are and who attacks; None where nobody does."""
        return attack_in_words(self.experiment, len(self.data["images"]))

    @property
    def seed(self) -> int:
        """The run's seed."""
        return int(self.experiment["seed"])

    @property
    def heads(self) -> int:
        """How many heads there are to choose from; 0 for algorithms without."""
        if self.choice is None:
            return 0
        heads = self.experiment["algorithm"].get("heads")
        return heads if isinstance(heads, int) else int(self.choice.max()) + 1

    @property
    def tested_by_oracle(self) -> bool:
        """Whether nodes were tested with the head best on the test data, and not with the one they chose."""
        several = self.choice is not None and self.experiment["algorithm"].get("heads") != 1
        return several and self.experiment["evaluation"]["head"] == "oracle"

    @functools.cached_property
    def point(self) -> dict[str, Any]:
        """What determines the run but for the seed, by `section.key`: runs with equal points are
        repetitions of one experiment."""
        return point_of(self.experiment)

    @functools.cached_property
    def data_point(self) -> str:
        """What determines its data: runs with equal ones must have the same."""
        return str(
            [self.seed, *(item for item in self.point.items() if item[0].startswith(("data.", "evaluation.im")))]
        )

    @functools.cached_property
    def point_hash(self) -> str:
        """SHA-256 of the point."""
        return hash_of(self.point)


def point_of(resolved: Mapping[str, Any]) -> dict[str, Any]:
    """What determines a run but for the seed, of a resolved experiment as nested dicts."""
    return {key: value for key, value in decisive_settings(resolved).items() if key != "seed"}


def hash_of(point: dict[str, Any]) -> str:
    """SHA-256 of a flat description."""
    return hashlib.sha256(json.dumps(point, sort_keys=True).encode()).hexdigest()


@dataclass
class _Gathered:
    """Moments of a run as they are read."""

    rounds: list[int] = field(default_factory=list)
    heard: list[float] = field(default_factory=list)
    choice: list[list[int]] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    final: tuple[Evaluation, float] | None = None
    train_loss: list[float | None] = field(default_factory=list)
    """The mean over nodes in each of the rounds."""
    one_node: list[Row] = field(default_factory=list)
    """What the first node noted of the survey, round by round."""


def load(path: str | Path) -> History:
    """The finished run of a directory; RunDirectoryError if there is none."""
    directory = RunDirectory(Path(path))
    if not directory.started:
        raise RunDirectoryError(f"{path} holds no run (there is no experiment.toml in it)")
    experiment, facts = directory.experiment(), directory.read("federation.json")
    n = len(facts["images"])
    nodes = honest_nodes(experiment, n)
    gathered = _gather(directory.rows, n, attackers(experiment))
    if gathered.final is None:
        rounds = experiment["training"]["rounds"]
        if directory.finished:
            raise RunDirectoryError(
                f"{path} was finished, but its rows are damaged: those of the final evaluation are not whole; compute"
                f" the run again: facade run {quote(f'{path}/experiment.toml')} --out {quote(f'{path}-again')}"
            )
        raise RunDirectoryError(
            f"{path} is not finished (round {len(gathered.heard)} of {rounds}); continue it with:"
            f" {directory.resume_command}"
        )
    evaluation, heard_finally = gathered.final
    return History(
        path=directory.path,
        experiment=experiment,
        classes=facts["classes"],
        cluster=None if facts["cluster"] is None else np.array(facts["cluster"])[nodes],
        # Runs of the first version do not say who shares a test set; clusters did.
        test_of=np.array(facts.get("test_of") or facts["cluster"] or range(n))[nodes],
        rounds=np.array(gathered.rounds, np.int64),
        heard=np.array(gathered.heard),
        choice=np.array(gathered.choice) if gathered.choice else None,
        evaluations=gathered.evaluations,
        final=evaluation,
        heard_finally=heard_finally,
        nodes=nodes,
        data=facts,
        survey=survey_of(gathered.one_node),
        learned=not training_facts(gathered.train_loss, len(facts["classes"])),
        sealed=bool(directory.seals),
        measure=MEASURES[experiment["evaluation"].get("measure", ACCURACY.name)],
    )


def _gather(rows: RowsFile, n: int, bad: list[int]) -> _Gathered:
    """What the rows of n nodes say, without those of the nodes that attack."""
    gathered = _Gathered()
    for (round, kind), group in itertools.groupby(rows, key=lambda row: (row["round"], row["kind"])):
        whole = list(group)
        moment = list(of_honest(whole, bad))
        if len(whole) != n:
            warnings.warn(
                f"{rows.path}: round {round} has {kind} rows of {len(whole)} of {n} nodes; they are ignored",
                stacklevel=3,
            )
        elif kind == "round":
            gathered.rounds.append(round)
            gathered.heard.append(_bytes(moment))
            gathered.train_loss.append(mean_train_loss(moment))
            if "choice" in moment[0]:
                gathered.choice.append([row["choice"] for row in moment])
            if "heads_found" in moment[0]:
                gathered.one_node.append({name: moment[0][name] for name in ("round", "heads_found", "heads_worth")})
        elif kind == "evaluation":
            gathered.evaluations.append(_evaluation(moment))
        elif kind == "final":
            gathered.final = _evaluation(moment), _bytes(moment)
    return gathered


def _bytes(rows: list[Row]) -> float:
    """Payload bytes, the mean over nodes."""
    return float(sum(row["bytes"] for row in rows) / len(rows))


def _evaluation(rows: list[Row]) -> Evaluation:
    def column(name: str, dtype: type[np.generic]) -> Any:
        return np.array([row[name] for row in rows], dtype=dtype) if name in rows[0] else None

    other = next((other for other in OTHER_PRIOR if f"{other}_confusion" in rows[0]), "")
    return Evaluation(
        rows[0]["round"],
        column("confusion", np.int64),
        column("choice", np.int64),
        column("validation_confusion", np.int64),
        column("validation_loss", np.float64),
        OTHER_PRIOR.get(other),
        column(f"{other}_confusion", np.int64),
        recorded(rows),
        recorded(rows, "validation_measures"),
    )


def find(paths: Iterable[str | Path]) -> list[Path]:
    """Run directories among the paths: a run itself, or all runs directly or further below."""
    runs: list[Path] = []
    for path in map(Path, paths):
        if not path.exists():
            raise RunDirectoryError(f"{path} does not exist; give a run directory or a directory that holds runs")
        below = list(_runs_below(path))
        if not below:
            raise RunDirectoryError(f"{path} holds no run; give a run directory or a directory that holds runs")
        runs += [run for run in below if run not in runs]
    return runs


def _runs_below(path: Path) -> Iterator[Path]:
    if RunDirectory(path).started:
        yield path
    elif path.is_dir():
        for child in in_order(path, path.iterdir()):
            yield from _runs_below(child)


def unsealed(runs: Sequence[History]) -> str:
    """A word on runs whose files have no checksums; empty where all have."""
    count = sum(not run.sealed for run in runs)
    if not count:
        return ""
    which = "Not sealed" if count == len(runs) else f"{count} of {len(runs)} runs are not sealed"
    return f"{which}: older than checksums, so that damage to their files would not be noticed."


def judged_by(runs: Sequence[History], name: str | None) -> list[History]:
    """The runs, judged by the measure of that name; None: by the one that all of them name themselves."""
    if name is not None and name not in MEASURES:
        raise unknown("measure", name, MEASURES)
    named = sorted({run.measure.name for run in runs})
    if name is None and len(named) > 1:
        raise ExperimentError(
            f"the runs are to be judged by different measures ({', '.join(named)}); name one of them, as"
            f" 'facade show --measure {named[0]}' does, or by `measure` in a contract"
        )
    return [run if name is None else replace(run, measure=MEASURES[name]) for run in runs]


def load_all(paths: Iterable[str | Path], whole: bool = False) -> list[History]:
    """All finished runs at or below the paths. Unfinished ones are left out with a warning, or, where
    the `whole` is asked for, refused; a second run of the same experiment and seed is left out, or, where the
    `whole` is asked for and its results are others, refused."""
    runs: dict[tuple[str, int], History] = {}
    by_data: dict[str, History] = {}
    unfinished: list[str] = []
    for path in find(paths):
        try:
            run = load(path)
        except RunDirectoryError as error:
            unfinished.append(str(error))
            continue
        first = by_data.setdefault(run.data_point, run)
        if differing_facts(first.data, run.data):
            raise RunDirectoryError(
                f"{path} and {first.path} have the same [data] and seed but were computed on other data; look at them"
                " one at a time"
            )
        twin = runs.setdefault((run.point_hash, run.seed), run)
        if twin is run:
            continue
        same_results = np.array_equal(twin.final.confusion, run.final.confusion)
        sentence = f"{path} repeats the experiment and seed of {twin.path}" + (
            "" if same_results else ", with other results"
        )
        if whole and not same_results:
            raise RunDirectoryError(f"{sentence}; say which of the two counts, by naming it alone")
        warnings.warn(f"{sentence}; it is left out", stacklevel=2)
    if unfinished and (whole or not runs):
        raise RunDirectoryError("; ".join(unfinished))
    for complaint in unfinished:
        warnings.warn(f"left out: {complaint}", stacklevel=2)
    return list(runs.values())
