"""Run directories written by hand, so that every number in them is known."""

import functools
import json

import numpy as np

from experiments import digits


@functools.cache
def confusion(right, images=10, classes=2):
    """A matrix with balanced classes of `images` each, `right` of them answered rightly and the others
    spread evenly over the wrong classes."""
    matrix = np.full((classes, classes), (images - right) / (classes - 1))
    np.fill_diagonal(matrix, right)
    assert np.allclose(matrix, matrix.round())
    return matrix.round().astype(int).tolist()


def write_run_of(experiment, path, rounds, evaluations, final, cluster, final_bytes=1000, sites=None):
    """Write a finished run of an experiment. rounds: per round (bytes, choices or None); evaluations: {round:
    right answers per node}; final: right answers per node, of 10 per class."""
    path.mkdir(parents=True)
    (path / "experiment.toml").write_text(experiment.toml())
    n = len(final)
    facts = {"classes": ["a", "b"], "cluster": None if cluster is None else list(cluster), "images": [5] * n}
    facts |= {"test_of": list(cluster or range(n)), "sites": sites}
    (path / "federation.json").write_text(json.dumps(facts))
    rows = []
    for number, (heard, choices) in enumerate(rounds, 1):
        chosen = [{} if choices is None else {"choice": choices[i]} for i in range(n)]
        rows += [{"kind": "round", "round": number, "node": i, "bytes": heard} | chosen[i] for i in range(n)]
        if number in evaluations:
            rows += [
                {"kind": "evaluation", "round": number, "node": i, "confusion": confusion(right)} | chosen[i]
                for i, right in enumerate(evaluations[number])
            ]
    rows += [
        {"kind": "final", "round": len(rounds), "node": i, "confusion": confusion(right), "bytes": final_bytes}
        | chosen[i]
        for i, right in enumerate(final)
    ]
    (path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_run(path, rounds, evaluations, final, *settings, cluster=(0, 0, 0, 1), final_bytes=1000, sites=None):
    """Write a finished run on digits, of four nodes unless the settings say otherwise."""
    experiment = digits(*settings, clusters="3:1", degree=2, rounds=len(rounds), steps=1, every=2)
    return write_run_of(experiment, path, rounds, evaluations, final, cluster, final_bytes, sites)


def write_sites(path, final, *settings, names=("Basel", "Bern", "Chur", "Genf"), choices=None):
    """Write a finished run of sites of which nobody knows who is alike; `final` right answers of ten per class."""
    rounds = [(1000, choices)] * 2
    settings = (f'data.clusters="{len(final)}"', *settings)
    return write_run(path, rounds, {2: final}, final, *settings, cluster=None, sites=list(names)[: len(final)])
