"""What federation.json says of the data of a run: everything that a reader must know, and no data."""

from __future__ import annotations

import hashlib

import numpy as np
import torch

from facade.core.types import Row
from facade.data.federation import Federation
from facade.data.samples import Holdings, Labelled


def federation_facts(federation: Federation) -> Row:
    """Classes, clusters, names and samples of the nodes, how inputs are normalised, and a digest of all data."""
    samples = federation.training.samples
    return {
        "classes": federation.classes,
        "cluster": None if federation.cluster is None else federation.cluster.tolist(),
        "sites": federation.sites,
        "images": [len(rows) for rows in federation.training.rows],
        "test_of": federation.test_of.tolist(),
        "test_images": [len(test) for test in federation.tests],
        "leftover": federation.leftover,
        "overlapping": federation.overlapping,
        "notes": federation.notes,
        "shape": list(federation.shape),
        "stored": str(samples.x.dtype).removeprefix("torch."),
        "mean": federation.mean,
        "std": federation.std,
        "scale": federation.scale,
        "inputs": [name for column in federation.columns for name in column.inputs] or None,
        "standardised": federation.standardised,
        "sha256": _digest(federation),
    }


def _digest(federation: Federation) -> str:
    """SHA-256 of all images and labels and of who holds which."""
    digest = hashlib.sha256()
    for part in (federation.training.samples, *federation.tests, *(federation.validations or [])):
        digest.update(np.ascontiguousarray(part.x.numpy()).data)
        digest.update(np.ascontiguousarray(part.y.numpy()).data)
    for rows in federation.training.rows:
        digest.update(np.ascontiguousarray(rows).data)
    return digest.hexdigest()


def differing_facts(there: Row, here: Row) -> list[str]:
    """The keys in which the data of two runs differ; those of an older run may be fewer. Names change no data, nor does
    it whether nodes nobody tells apart are of one cluster or of an unknown one."""
    return [
        key
        for key in there
        if key in here and key not in ("notes", "sites") and _compared(key, there) != _compared(key, here)
    ]


def _compared(key: str, facts: Row) -> object:
    alike = key == "cluster" and facts[key] is not None and not any(facts[key])
    return None if alike else facts[key]


def federation_without_samples(facts: Row) -> Federation:
    """The federation that federation.json describes, with no samples in it."""
    n = len(facts["images"])
    x = torch.empty(0, *facts["shape"], dtype=getattr(torch, facts["stored"]))
    nothing = Labelled(x, torch.empty(0, dtype=torch.int64))
    return Federation(
        training=Holdings(nothing, np.arange(n), [np.empty(0, np.int64)] * n),
        tests=[],
        test_of=np.array(facts["test_of"]),
        classes=facts["classes"],
        mean=facts["mean"],
        std=facts["std"],
        scale=facts.get("scale", "auto"),
        cluster=None if facts["cluster"] is None else np.array(facts["cluster"]),
        sites=facts.get("sites"),
    )
