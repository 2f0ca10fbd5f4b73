"""Computing the runs of a study that are not kept yet, one process for each core."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from typing import Any

import numpy as np

from facade.core.types import Row
from facade.errors import DivergedError, FacadeError
from facade.experiment.config import Experiment
from facade.experiment.setup import set_up
from facade.runtimes.run import run
from facade.studies.kept_lines import Case, KeptLines, diverged_line, line_of, of_guard_and_attack, of_sites

SECONDS_BETWEEN_WRITES = 20.0


Missing = Sequence[tuple[Case, int]]
"""Runs that are not kept yet: their cases and seeds."""


def compute(missing: Missing, kept: KeptLines, at_once: int, root: str, say: Callable[[str], None]) -> None:
    """Compute what is missing, `at_once` runs at a time; `root` holds the data sets. What is computed is kept soon, so
    that a study goes on where it was stopped."""
    written = time.monotonic()
    pool = ProcessPoolExecutor(at_once)
    try:
        under_way = {pool.submit(_line, case, seed, root): (case, seed) for case, seed in missing}
        for done, future in enumerate(as_completed(under_way), 1):
            kept.add(_result(future, *under_way[future]))
            if time.monotonic() - written > SECONDS_BETWEEN_WRITES or done == len(missing):
                kept.write()
                written = time.monotonic()
                say(f"{done} of {len(missing)} runs")
    finally:  # what was computed is kept, and nothing more is begun
        kept.write()
        pool.shutdown(cancel_futures=True)


def _result(future: Future[Row], case: Case, seed: int) -> Row:
    try:
        return future.result()
    except FacadeError as error:
        raise FacadeError(f"the run '{case.label}' of '{case.part}', seed {seed}, failed: {error}") from None


def _line(case: Case, seed: int, root: str) -> Row:
    os.environ["OMP_NUM_THREADS"] = "1"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a study asks for things that a user is warned of
        experiment = experiment_of(case, seed, root)
        federation = set_up(experiment).federation
        cluster = np.zeros(federation.n, np.int64) if federation.cluster is None else np.asarray(federation.cluster)
        try:
            result = run(experiment, progress=False)
        except DivergedError:  # attackers may want just that
            return diverged_line(case, seed, cluster, len(federation.classes))
    finals = [row for row in result.rows if row["kind"] == "final"]
    rounds = [row for row in result.rows if row["kind"] == "round"]
    last = [row for row in rounds if row["round"] == experiment.training.rounds]
    line = line_of(case, seed, result.summary, finals, last, cluster)
    on_real_sites = federation.sites is not None and federation.validations is not None
    return line | of_guard_and_attack(case, finals, rounds) | (of_sites(finals) if on_real_sites else {})


def experiment_of(case: Case, seed: int, root: str) -> Experiment:
    """The experiment of one run of a case."""
    tables: dict[str, dict[str, Any]] = {}
    for key, value in case.settings.items():
        section, _, name = key.partition(".")
        tables.setdefault(section, {})[name] = value
    rounds = tables["training"]["rounds"]
    tables["data"]["root"] = root
    tables["runtime"] = {"threads": 1} | tables.get("runtime", {})
    return Experiment.of({"seed": seed, "evaluation": {"every": rounds}} | tables, ())
