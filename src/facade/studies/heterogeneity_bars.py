"""What the study of heterogeneity had to show, and whether it does."""

from __future__ import annotations

from collections.abc import Iterator

from facade.paper.reproduction_tables import table
from facade.studies import heterogeneity
from facade.studies.heterogeneity_numbers import HeterogeneityRuns, share
from facade.studies.kept_lines import Case, KeptRun
from facade.studies.methods import METHODS
from facade.studies.numbers import Bar, average, bar_table, cell, interval, mean, means, right, settled


def bars(study: HeterogeneityRuns) -> str:
    """Every bar with what was seen; those that were missed come first."""
    by_labels = [*_skewed(study), *_label_clusters(study)]
    return bar_table([*by_labels, *_groups(study), *_settling(study), *_others(study), *_cifar(study)])


def harms(study: HeterogeneityRuns) -> str:
    """Every setting of digits in which FACADE by default leaves a cluster a point or more below EL, seed by seed, and
    how much more, or less, the other clusters get."""
    lines = []
    for case in (case for case in study.cases if case.label == "class-means" and case.settings["algorithm.heads"] < 8):
        rival = {key: value for key, value in case.settings.items() if not key.startswith("algorithm.")}
        el = study.kept.runs(Case("", "", rival | METHODS["EL"], case.seeds))
        new = {run.seed: run for run in study.kept.runs(case)}
        pairs = [(new[run.seed], run) for run in el if run.seed in new]
        if case.settings["data.source"] != "digits" or not pairs:
            continue
        gained = [[one.clusters[c] - other.clusters[c] for one, other in pairs] for c in range(len(el[0].clusters))]
        if min(map(average, gained)) <= -1:
            clusters, loss = case.settings["data.clusters"], case.settings.get("training.loss", "plain")
            skewed = share(case.settings.get("data.alpha"))
            skew = case.settings.get("data.skew", "rotate")
            lines.append([clusters, skew, skewed, loss, " / ".join(f"{interval(each)}" for each in gained)])
    if not lines:
        return "In no setting on digits is a cluster a point or more below EL in the mean over seeds."
    return table(["clusters", "skew", "α", "loss", "points above EL"], lines)


def _skewed(study: HeterogeneityRuns) -> Iterator[Bar]:
    """24:8, FACADE as it is by default."""
    for alpha in (0.3, 1.0, 0.1):
        new, what = study.skewed("24:8", alpha, "plain", "class-means"), f"24:8, α = {alpha:g}"
        el, plain = (
            [study.skewed("24:8", alpha, loss, name) for loss in ("plain", "balanced")]
            for name in ("EL", "as published")
        )
        if alpha > 0.1:
            yield Bar(f"{what}: settled in 19 of 20", f"{settled(new)} of {len(new)}", settled(new) >= 19)
        if alpha == 0.3:
            best = [max(mean(runs, c) for runs in el) for c in (0, 1)]
            met = mean(new, 1) >= best[1] + 12 and mean(new, 0) >= best[0]
            asked = f"{what}: minority 12 points above EL's best variant, majority not below it"
            yield Bar(asked, f"{means(new)} against {best[0]:.1f} / {best[1]:.1f}", met)
        elif alpha == 1.0:
            yield Bar(f"{what}: minority 93.5", means(new), mean(new, 1) >= 93.5)
        else:
            best = [max(mean(runs, c) for runs in [*el, *plain]) for c in (0, 1)]
            asked = f"{what}: no cluster more than a point below the better of EL and FACADE as published"
            met = all(mean(new, c) >= best[c] - 1 for c in (0, 1))
            yield Bar(asked, f"{means(new)} against {best[0]:.1f} / {best[1]:.1f}", met)


def _label_clusters(study: HeterogeneityRuns) -> Iterator[Bar]:
    """Clusters without a class in common, FACADE as it is by default."""
    for clusters in ("24:8", "30:2", "16:16"):
        new, *rivals = (
            study.runs("label clusters", name, data_clusters=clusters, training_loss=None)
            for name in ("class-means", "EL", "as published")
        )
        best = [max(mean(runs, c) for runs in rivals) for c in (0, 1)]
        rival = "the better of EL and FACADE as published"
        asked = f"label clusters, {clusters}: no cluster more than half a point below {rival}"
        met = all(mean(new, c) >= best[c] - 0.5 for c in (0, 1))
        yield Bar(asked, f"{means(new)} against {best[0]:.1f} / {best[1]:.1f}", met)


def _groups(study: HeterogeneityRuns) -> Iterator[Bar]:
    """How many heads `auto` finds."""
    for clusters in ("24:8", "30:2"):
        for alpha in (1.0, 0.3):
            runs = study.skewed(clusters, alpha, "plain", "auto")
            asked = f"auto, {clusters}, α = {alpha:g}: as many heads as clusters in 18 of 20"
            yield Bar(asked, right(runs), sum(run.heads == 2 for run in runs) >= 18)
    for skewed in heterogeneity.ALPHAS:
        runs = study.runs("one cluster", "auto", data_alpha=skewed)
        asked = f"auto, one cluster, α = {share(skewed)}: one head in 19 of 20"
        yield Bar(asked, right(runs), sum(run.heads == 1 for run in runs) >= 19)


def _settling(study: HeterogeneityRuns) -> Iterator[Bar]:
    for case in (case for case in study.cases if case.part == "settling" and case.label == "class-means"):
        runs, trouble = study.kept.runs(case), ", losses" if "network.loss" in case.settings else ""
        asked = f"equal labels, {case.settings['data.clusters']}{trouble}: settled in 100 of 100"
        yield Bar(asked, f"{settled(runs)} of {len(runs)}", settled(runs) == 100)


def _others(study: HeterogeneityRuns) -> Iterator[Bar]:
    few = study.runs("uneven", "class-means")
    met = settled(few) >= 18 and mean(few, 1) >= 88
    yield Bar("uneven sizes: settled in 18 of 20, minority 88", cell(few), met)
    labels = ("alone", "EL, statistics averaged", "class-means")
    alone, averaged, new = (average(run.worst_node for run in study.runs("sites", label)) for label in labels)
    asked = "six sites: EL with averaged statistics 5 points below training alone, the default not below it"
    seen = f"alone {alone:.1f}, EL averaged {averaged:.1f}, default {new:.1f}"
    yield Bar(asked, seen, averaged <= alone - 5 and new >= alone)


def _cifar(study: HeterogeneityRuns) -> Iterator[Bar]:
    for clusters in ("16:16", "30:2"):
        plain, new = (
            study.runs("cifar short", name, data_clusters=clusters) for name in ("as published", "class-means")
        )
        plain = [run for run in plain if run.settled]
        met = len(new) == 3 and all(mean(new, c) >= mean(plain, c) - 0.5 for c in (0, 1))
        asked = f"CIFAR-10, {clusters}, 80 rounds: within 0.5 points of runs as published that settled"
        yield Bar(asked, f"{_of_all(new, 3)} against {means(plain)}", met)


def _of_all(runs: list[KeptRun], count: int) -> str:
    return means(runs) if len(runs) == count else f"{len(runs)} of {count} runs computed"
