"""Fairness across sites, from their signed site.json files."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from facade.analysis import measures, metrics
from facade.errors import ExperimentError
from facade.peers.after.outcome import SiteFacts, read_site
from facade.peers.after.suspects import suspects, unused_share
from facade.peers.trust.membership import Membership, vouched
from facade.peers.trust.site import foreign_names


def compare_sites(paths: Sequence[Path], membership: Path | None = None) -> dict[str, Any]:
    """Accuracy of every site and its gain over training alone; mean, worst, spread; whose files are missing, by
    the list or by whom the sites know of: the worst served must not be left out unnoticed. Of what every site sent, the
    share that others did not use, and that of its group: protection must not fall on a minority unnoticed."""
    listed = None if membership is None else vouched(membership)
    sites = [read_site(path, listed) for path in paths]
    members = {member.id for member in listed.members} if listed else {id for site in sites for id in site.ledger}
    _check_of_one_run(dict(zip(paths, sites, strict=True)), listed)
    twice = sorted(id for id, count in Counter(site.id for site in sites).items() if count > 1)
    if twice:
        raise ExperimentError(f"more than one file is of {', '.join(twice)}; give one file for each site")
    confusion = np.array([site.final.confusion for site in sites], dtype=np.int64)
    accuracy = metrics.accuracy(confusion)
    words = [word for site in sites for word in site.words]
    groups = _groups(sites)
    entries = [
        {
            "id": site.id,
            "accuracy": float(accuracy[i]),
            "measures": _measures(site),
            "gain": site.gain,
            "choice": site.final.choice,
            "images": site.images,
            "missed": {id: e.late + e.missed for id, e in site.ledger.items() if e.late + e.missed},
            "refused": {id: sum(e.refused.values()) for id, e in site.ledger.items() if e.refused},
            "dropped": {id: e.unused for id, e in site.ledger.items() if e.unused},
            "unused_by_others": unused_share(word for word in words if word.member == site.id),
            "unused_of_group": unused_share(word for word in words if word.member in groups[site.final.choice]),
            "gate_closed": site.gate_closed,
        }
        for i, site in enumerate(sites)
    ]
    return {
        "federation": sites[0].federation,
        "algorithm": sites[0].algorithm,
        "policy": sites[0].policy,
        "sites": sorted(entries, key=lambda entry: str(entry["id"])),
        "mean": float(accuracy.mean()),
        "worst": float(accuracy.min()),
        "spread": float(accuracy.max() - accuracy.min()),
        "missing": sorted(members - {site.id for site in sites}),
        "losers": sorted(site.id for site in sites if site.gain is not None and site.gain < 0),
        "suspects": [asdict(suspect) for suspect in suspects(words)],
    }


def _measures(site: SiteFacts) -> dict[str, Any]:
    """Every measure of a site: value and ends of the interval, null for what is not known."""
    row = {} if site.final.measures is None else {"measures": site.final.measures.model_dump()}
    confusion = np.array([site.final.confusion], dtype=np.int64)
    told = measures.facts(confusion, measures.recorded([row]), [site.id], np.zeros(1, np.int64), None)
    return {name: facts["sites"][site.id] for name, facts in told.items()}


class _Described(NamedTuple):
    """A run, as a site.json or a list tells of it."""

    federation: str
    experiment: str
    """SHA-256 of what determines the result."""
    classes: int

    def __str__(self) -> str:
        return f"{self.federation!r} (experiment {self.experiment[:8]}, {self.classes} classes)"


def _check_of_one_run(sites: dict[Path, SiteFacts], listed: Membership | None) -> None:
    """ExperimentError, with names, where files are of several experiments, or of another one than the list is."""
    runs: dict[_Described, list[str]] = {}
    for path, site in sites.items():
        run = _Described(site.federation, site.experiment_sha256, len(site.final.confusion))
        runs.setdefault(run, []).append(str(path))
    if len(runs) > 1:
        each = "; ".join(f"{run}: {', '.join(of_run)}" for run, of_run in runs.items())
        raise ExperimentError(f"these files are of different experiments, {each}; compare those of one")
    expected = None if listed is None else _described(listed)
    for run, of_run in runs.items():
        if expected is not None and run != expected:
            raise ExperimentError(
                f"{', '.join(of_run)}: of {run}, but the list is of {expected}; give the list that these sites ended"
                " their run with"
            )


def _described(listed: Membership) -> _Described | None:
    """The run of a list; None where nobody can say without running code of the sites' own."""
    from facade.experiment.config import Experiment

    if next(foreign_names(listed.experiment), None) is not None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they were given when the list was played by
        experiment = Experiment.of(listed.experiment)
    return _Described(listed.federation, experiment.hash, len(listed.schema_.classes))


def _groups(sites: Sequence[SiteFacts]) -> dict[int | None, set[str]]:
    """The ids of sites that chose the same head, by that head; all of them where nobody chooses."""
    groups: dict[int | None, set[str]] = {}
    for site in sites:
        groups.setdefault(site.final.choice, set()).add(site.id)
    return groups
