"""The study of heterogeneity: what happens to FACADE and its rivals where labels, sizes and normalisation differ from
node to node, too, and where nodes look different without needing heads of their own."""

from __future__ import annotations

from typing import Any

from facade.studies.kept_lines import Case
from facade.studies.methods import method

SEEDS = tuple(range(1, 21))
FEW_SEEDS = tuple(range(1, 6))
MANY_SEEDS = tuple(range(1, 101))
ALPHAS = (None, 1.0, 0.3, 0.1)
"""Of Dirichlet's distribution; None: equal label shares."""

DIGITS: dict[str, Any] = {"data.source": "digits", "training.rounds": 120}
CIFAR: dict[str, Any] = {"data.source": "cifar10", "model.name": "gn-lenet"}
COMPARED = ("alone", "EL", "DePRL", "as published", "farthest", "class-means", "auto")
"""Those of METHODS that are compared where labels differ."""
SITES: dict[str, Any] = {
    "data.source": "digits", "data.clusters": "3:3", "data.skew": "contrast", "data.severity": 4.0,
    "model.name": "cnn-bn", "topology.degree": 2, "training.rounds": 80,
}  # fmt: skip
LABEL_CLUSTERS: dict[str, Any] = {"data.skew": "labels", "data.groups": [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9]]}
TROUBLE: dict[str, Any] = {"network.loss": 0.1, "network.offline": 0.1}


def _told(name: str, clusters: str) -> dict[str, Any]:
    """The settings of a method that is told how many clusters there are."""
    return method(name, max(2, clusters.count(":") + 1))


def digits(clusters: str, alpha: float | None = None, loss: str = "plain", **more: Any) -> dict[str, Any]:
    """Digits, turned from cluster to cluster."""
    skewed = {} if alpha is None else {"data.partition": "dirichlet", "data.alpha": alpha}
    balanced = {} if loss == "plain" else {"training.loss": loss}
    return DIGITS | {"data.clusters": clusters} | skewed | balanced | more


def cases() -> list[Case]:
    """All runs of the study on digits."""
    by_labels = [*labels(), *label_clusters(), *more_clusters(), *one_cluster()]
    return [*by_labels, *settling(), *uneven(), *looks(), *many_heads(), *sites()]


def labels() -> list[Case]:
    """Label shares that differ, under both losses; with equal shares these are one."""
    return [
        Case("labels", name, digits(clusters, alpha, loss) | _told(name, clusters), SEEDS)
        for clusters in ("24:8", "30:2")
        for alpha in ALPHAS
        for loss in (("plain",) if alpha is None else ("plain", "balanced"))
        for name in COMPARED
    ]


def label_clusters() -> list[Case]:
    """Clusters that have no class in common and look alike otherwise."""
    every = [("plain", name) for name in ("alone", "EL", "as published", "farthest", "class-means", "auto")]
    return [
        Case("label clusters", name, digits(clusters, None, loss) | LABEL_CLUSTERS | _told(name, clusters), SEEDS)
        for clusters in ("24:8", "30:2", "16:16")
        for loss, name in [*every, ("balanced", "EL"), ("balanced", "class-means")]
    ]


def more_clusters() -> list[Case]:
    """The same for other divisions."""
    return [
        Case("more clusters", name, digits(clusters, alpha) | _told(name, clusters), FEW_SEEDS)
        for clusters in ("16:16", "20:10:2")
        for alpha in ALPHAS
        for name in ("EL", "class-means", "auto")
    ]


def one_cluster() -> list[Case]:
    """Nodes that differ in nothing but their labels."""
    return [
        Case("one cluster", name, digits("32", alpha) | _told(name, "32"), SEEDS)
        for alpha in ALPHAS
        for name in ("EL", "class-means", "auto")
    ]


def settling() -> list[Case]:
    """Equal labels, many seeds: every setting in which farthest-first seeding was measured."""
    told: list[tuple[str, dict[str, Any]]] = [
        (clusters, {}) for clusters in ("30:2", "24:8", "16:16", "20:10:2", "8:8:8:8")
    ]
    return [
        Case("settling", name, digits(clusters) | more | _told(name, clusters), MANY_SEEDS)
        for clusters, more in [*told, ("30:2", TROUBLE), ("16:16", TROUBLE)]
        for name in ("class-means", "auto")
    ]


def uneven() -> list[Case]:
    """A third of the majority holds six rows."""
    few = {"data.partition": "uneven", "data.few_nodes": 10, "data.few_rows": 6}
    return [
        Case("uneven", name, digits("30:2") | few | _told(name, "30:2"), SEEDS)
        for name in ("alone", "EL", "as published", "farthest", "class-means", "auto")
    ]


def looks() -> list[Case]:
    """Clusters that look different and that one head serves as well."""
    return [
        Case("looks", name, digits("24:8", alpha) | skew | _told(name, "24:8"), SEEDS)
        for skew in ({"data.skew": "brightness"}, {"data.skew": "contrast", "data.severity": 4.0})
        for alpha in (None, 0.3)
        for name in ("EL", "as published", "farthest", "class-means", "auto")
    ]


def many_heads() -> list[Case]:
    """Eight heads for two clusters."""
    return [
        Case("many heads", name, digits("24:8") | method(name, 8), SEEDS)
        for name in ("as published", "farthest", "class-means")
    ]


def sites() -> list[Case]:
    """Six sites with batch normalisation and images of two contrasts."""
    averaged: dict[str, Any] = {"model.local": []}
    return [
        Case("sites", label, SITES | _told(name, "3:3") | more, SEEDS)
        for label, name, more in (
            ("alone", "alone", {}),
            ("EL, statistics averaged", "EL", averaged),
            ("EL", "EL", {}),
            ("class-means", "class-means", {}),
            ("auto", "auto", {}),
        )
    ]


def cifar_cases() -> list[Case]:
    """The runs on CIFAR-10, which take minutes each."""
    short = [
        Case("cifar short", name, cifar(name, clusters, 80), (1, 2, 3))
        for clusters in ("16:16", "30:2")
        for name in ("as published", "class-means")
    ]
    skewed = [
        Case("cifar labels", name, cifar(name, "24:8", 160) | shares, (1, 2))
        for shares in ({}, {"data.partition": "dirichlet", "data.alpha": 0.3})
        for name in ("EL", "class-means")
    ]
    return [*short, *skewed, Case("cifar full", "class-means", cifar("class-means", "30:2", 1200), (1,))]


def cifar(name: str, clusters: str, rounds: int) -> dict[str, Any]:
    """CIFAR-10 turned from cluster to cluster, with the paper's learning rates."""
    lr = 0.05 if name == "EL" else 0.01
    return CIFAR | {"data.clusters": clusters, "training.rounds": rounds, "training.lr": lr} | _told(name, clusters)
