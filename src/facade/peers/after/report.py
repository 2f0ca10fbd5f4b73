"""Fairness across sites, from their signed site.json files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from facade.analysis import metrics
from facade.errors import ExperimentError
from facade.peers.after.outcome import read_site
from facade.peers.trust.membership import vouched


def compare_sites(paths: Sequence[Path], membership: Path | None = None) -> dict[str, Any]:
    """Accuracy of every site and its gain over training alone; mean, worst, spread; whose files are missing, by
    the list or by whom the sites know of: the worst served must not be left out unnoticed."""
    listed = None if membership is None else vouched(membership)
    sites = [read_site(path, listed) for path in paths]
    members = {member.id for member in listed.members} if listed else {id for site in sites for id in site.ledger}
    runs = {(site.federation, site.experiment_sha256, len(site.final.confusion)) for site in sites}
    if len(runs) > 1:
        raise ExperimentError("these files come from different federations or experiments; compare one at a time")
    twice = sorted(id for id, count in Counter(site.id for site in sites).items() if count > 1)
    if twice:
        raise ExperimentError(f"more than one file is of {', '.join(twice)}; give one file for each site")
    confusion = np.array([site.final.confusion for site in sites], dtype=np.int64)
    accuracy = metrics.accuracy(confusion)
    entries = [
        {
            "id": site.id,
            "accuracy": float(accuracy[i]),
            "gain": site.gain,
            "choice": site.final.choice,
            "images": site.images,
            "missed": {id: e.late + e.missed for id, e in site.ledger.items() if e.late + e.missed},
            "refused": {id: sum(e.refused.values()) for id, e in site.ledger.items() if e.refused},
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
    }
