"""Every figure and table of the paper by its name there, and two more questions."""

from __future__ import annotations

from dataclasses import replace

from facade.paper import figures, head_figures, tables, theory_figure
from facade.paper.settings import CIFAR, FLICKR, IMAGENETTE, RIVALS, Part
from facade.paper.study import Study

_CIFAR = tuple(Part(CIFAR, ratio) for ratio in ("16:16", "24:8", "30:2"))
_IMAGENETTE = tuple(Part(IMAGENETTE, ratio) for ratio in ("12:12", "18:6", "20:4"))
_FLICKR = tuple(Part(FLICKR, ratio) for ratio in ("8:8", "14:2"))
_LABELS = tuple(Part(CIFAR, ratio, "labels") for ratio in ("16:16", "24:8", "30:2"))
_COLOUR = tuple(Part(CIFAR, ratio, "colour") for ratio in ("8:8:8:8", "20:6:4:2"))
_THREE = (Part(CIFAR, "20:10:2", algorithms=("facade",)),)
_HEADS = (Part(CIFAR, "20:10:2", algorithms=("facade",), heads=(1, 2, 3, 4, 5)),)
_EL = (Part(CIFAR, "30:2", algorithms=("el",)),)
_SHRINKING = tuple(
    Part(CIFAR, ratio, algorithms=("el", "deprl", "facade", "local"))
    for ratio in ("16:16", "24:8", "28:4", "30:2", "31:1")
)
_BYTES = tuple(replace(part, algorithms=("el", "dac", "facade")) for part in _CIFAR + _IMAGENETTE)
"""The paper leaves DePRL out for its low accuracy."""
_PRICED = (Part(CIFAR, "30:2", algorithms=(*RIVALS, "dpsgd", "local")),)

_ALL = (
    Study("F1", "EL leaves the minority behind", _EL, figures.clusters_of_one, figures.cluster_numbers),
    Study("F3", "Accuracy per cluster, CIFAR-10", _CIFAR, figures.curves, figures.cluster_numbers),
    Study("F4", "Accuracy per cluster, Imagenette", _IMAGENETTE, figures.curves, figures.cluster_numbers),
    Study("F5", "Highest fair accuracy", _CIFAR + _IMAGENETTE, figures.fair_bars, figures.fair_numbers),
    Study("F6", "DP and EO", _CIFAR + _IMAGENETTE, figures.boxes, figures.odds_numbers, columns=2),
    Study(
        "F7", "Bytes to an accuracy", _BYTES, figures.bytes_bars, figures.bytes_numbers,
        figures.bytes_sentences,
    ),
    Study("F8", "How many heads", _HEADS, head_figures.heat_map, head_figures.heat_numbers),
    Study(
        "F9", "Who chooses which head", _THREE, head_figures.shares, head_figures.share_numbers,
        head_figures.share_sentences,
    ),
    Study("F10", "Fair accuracy over rounds, CIFAR-10", _CIFAR, figures.fair_curves),
    Study("F11", "Fair accuracy over rounds, Imagenette", _IMAGENETTE, figures.fair_curves),
    Study("F12", "Fair accuracy over rounds, Flickr-Mammals", _FLICKR, figures.fair_curves, columns=2),
    Study(
        "F13", "Accuracy per cluster, Flickr-Mammals", _FLICKR, figures.curves, figures.cluster_numbers, columns=2
    ),
    Study("F14", "Highest fair accuracy, Flickr-Mammals", _FLICKR, figures.fair_bars, figures.fair_numbers),
    Study("F15", "DP and EO, Flickr-Mammals", _FLICKR, figures.boxes, figures.odds_numbers, columns=2),
    Study("F16", "Loss of every head", _THREE, head_figures.losses, say=head_figures.loss_sentences),
    Study("F17", "Accuracy per cluster, label clusters", _LABELS, figures.curves, figures.label_numbers),
    Study("F18", "Highest fair accuracy, label clusters", _LABELS, figures.fair_bars, figures.fair_numbers),
    Study("F19", "Highest fair accuracy, colour clusters", _COLOUR, figures.fair_bars, figures.fair_numbers),
    Study("F20", "Accuracy per cluster, colour clusters", _COLOUR, figures.curves, columns=2),
    Study("T1", "Data sets, sizes and learning rates", (), tables.rates_table, tables.rates),
    Study("T2", "Results on CIFAR-10", _CIFAR, tables.results_table, tables.results),
    Study("T3", "Results on Imagenette", _IMAGENETTE, tables.results_table, tables.results),
    Study("T4", "Results on Flickr-Mammals", _FLICKR, tables.results_table, tables.results),
    Study(
        "theory", "Contraction towards the optimum", (), theory_figure.panels, theory_figure.numbers,
        theory_figure.sentences, reduced=theory_figure.reduced,
    ),
    Study("minority", "As the minority shrinks (not in the paper)", _SHRINKING, figures.shrinking),
    Study("pareto", "Worst cluster, bytes and time (not in the paper)", _PRICED, figures.prices, columns=1),
)  # fmt: skip

STUDIES: dict[str, Study] = {study.id: study for study in _ALL}
