"""A finished run as its rows tell it, as arrays. Statistics, tables and contracts look at nothing else, so a
new metric works on old runs."""

from __future__ import annotations

import functools
import hashlib
import json
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from facade.analysis.measures import ACCURACY, MEASURES, Measure
from facade.analysis.metrics import Counts, Floats
from facade.core.plan import OTHER_PRIOR
from facade.core.types import Row
from facade.data.clusters import cluster_sizes
from facade.data.site_names import site_names
from facade.errors import DamagedFileError, ExperimentError, RunDirectoryError, unknown
from facade.experiment.decisive_settings import decisive_settings
from facade.runs import moments_file
from facade.runs.federation_facts import differing_facts
from facade.runs.honest_nodes import attack_in_words, attackers, honest_nodes
from facade.runs.moments import Moments, Tested, gathered
from facade.runs.run_directory import RunDirectory
from facade.runs.run_order import in_order
from facade.runs.survey_facts import SurveyFacts
from facade.runs.training_facts import training_facts


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


def load(path: str | Path) -> History:
    """The finished run of a directory; RunDirectoryError if there is none."""
    directory = RunDirectory(Path(path))
    if not directory.started:
        raise RunDirectoryError(f"{path} holds no run (there is no experiment.toml in it)")
    experiment, facts = directory.experiment(), directory.read("federation.json")
    n = len(facts["images"])
    nodes = honest_nodes(experiment, n)
    moments = moments_of(directory, n, attackers(experiment))
    for round, kind, there in moments.incomplete:
        warnings.warn(
            f"{directory.rows.path}: round {round} has {kind} rows of {there} of {n} nodes; they are ignored",
            stacklevel=2,
        )
    if moments.final is None:
        rounds = experiment["training"]["rounds"]
        if directory.finished:
            raise RunDirectoryError(
                f"{path} was finished, but its rows are damaged: those of the final evaluation are not whole; compute"
                f" the run again: facade run {quote(f'{path}/experiment.toml')} --out {quote(f'{path}-again')}"
            )
        raise RunDirectoryError(
            f"{path} is not finished (round {len(moments.rounds)} of {rounds}); continue it with:"
            f" {directory.resume_command}"
        )
    return History(
        path=directory.path,
        experiment=experiment,
        classes=facts["classes"],
        cluster=None if facts["cluster"] is None else np.array(facts["cluster"])[nodes],
        # Runs of the first version do not say who shares a test set; clusters did.
        test_of=np.array(facts.get("test_of") or facts["cluster"] or range(n))[nodes],
        rounds=np.array(moments.rounds, np.int64),
        heard=np.array(moments.heard),
        choice=np.stack(moments.choice)[:, nodes].astype(np.int64) if moments.choice else None,
        evaluations=[_evaluation(tested) for tested in moments.evaluations],
        final=_evaluation(moments.final),
        heard_finally=moments.heard_finally,
        nodes=nodes,
        data=facts,
        survey=moments.survey,
        learned=not training_facts(moments.train_loss, len(facts["classes"])),
        sealed=bool(directory.seals),
        measure=MEASURES[experiment["evaluation"].get("measure", ACCURACY.name)],
    )


def moments_of(directory: RunDirectory, n: int, bad: Sequence[int]) -> Moments:
    """The moments of a run of n nodes, of which `bad` attack: from the file that keeps them, if the run is sealed and
    has one that fits its rows, else from the rows. Rows that are damaged are refused in any case."""
    rows, sealed, path = directory.rows, directory.seals, directory.path / moments_file.FILE
    if path.name in sealed and path.exists():
        rows.check()
        try:
            kept = moments_file.read(directory.content(path.name), sealed[rows.path.name])
            if kept is not None:
                return kept
        except DamagedFileError:
            warnings.warn(f"{path} is damaged, or was changed; the rows, which are whole, are read", stacklevel=3)
    return gathered(rows, n, bad)


def _evaluation(tested: Tested) -> Evaluation:
    def counts(name: str) -> Counts | None:
        return tested.values[name].astype(np.int64) if name in tested.values else None

    other = next((other for other in OTHER_PRIOR if f"{other}_confusion" in tested.values), "")
    return Evaluation(
        tested.round,
        tested.values["confusion"].astype(np.int64),
        counts("choice"),
        counts("validation_confusion"),
        tested.values.get("validation_loss"),
        OTHER_PRIOR.get(other),
        counts(f"{other}_confusion"),
        tested.values.get("measures"),
        tested.values.get("validation_measures"),
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
