"""Every measure of every site and cluster of an experiment, its seeds taken together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from facade.analysis import measures
from facade.analysis.measures import MEASURES
from facade.analysis.statistics import TEST_NOISE, student_interval
from facade.core.types import Row
from facade.runs.history import History


def measured_sites(runs: Sequence[History]) -> Row:
    """By measure: `sites` by name and, where they are known, `clusters` in their order, each with
    its mean over seeds, an interval and every seed's value; null for what a run does not have."""
    each = [_facts(run) for run in runs]
    told: Row = {}
    for name in MEASURES:
        sites = [facts[name]["sites"] for facts in each]
        told[name] = {"sites": {site: _over_seeds([one.get(site) for one in sites]) for site in sites[0]}}
        if "clusters" in each[0][name]:
            told[name]["clusters"] = [
                _over_seeds(list(of_seeds))
                for of_seeds in zip(*(facts[name]["clusters"] for facts in each), strict=True)
            ]
    return told


def _facts(run: History) -> Row:
    return measures.facts(run.final.confusion, run.final.beside, run.sites, run.test_of, run.cluster)


def _over_seeds(facts: Sequence[Row | None]) -> Row:
    """Values of one site or cluster: what they come to, as estimates of numbers are told."""
    points = [None if fact is None else fact["value"] for fact in facts]
    known = [point for point in points if point is not None]
    mean = float(np.mean(known)) if known and len(known) == len(points) else None
    found: Row | None = None
    if len(facts) == 1 and facts[0] is not None and facts[0]["low"] is not None:
        found = {"low": facts[0]["low"], "high": facts[0]["high"], "accounts_for": TEST_NOISE}
    elif (interval := student_interval(points)) is not None:
        found = interval._asdict()
    return {"mean": mean, "interval": found, "values": points}
