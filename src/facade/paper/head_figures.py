"""The paper's figures of heads: how many, who chose which, and how well each fits."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np

from facade.analysis.metrics import Floats
from facade.analysis.statistics import Estimate, settlement, settles
from facade.paper.published import ONE_HEAD_MINORITY, SETTLED_ALL, SETTLED_MINORITY
from facade.paper.study import PublishedComparison, StudyRuns
from facade.report import charts, facts, theme
from facade.report.facts import Rows
from facade.report.panels import Panel
from facade.runs.history import History
from facade.runs.run_directory import RunDirectory

FIRST_ROUNDS = 80
"""How much of a run Figure 9 shows."""


def heat_map(runs: StudyRuns) -> list[Panel]:
    """Highest observed accuracy per number of heads and cluster, and fair accuracy."""
    panels = []
    for part in runs.by_part:
        comparison = runs.comparison(part)
        names = {f"highest_cluster_{c}": name for c, name in enumerate(comparison.clusters)}
        names["highest_fair_accuracy"] = "fair accuracy"
        rows: Rows = [
            {"k": subject.runs[0].heads, "of": name, "accuracy": round(100 * mean, 1)}
            for subject in comparison.subjects
            for number, name in names.items()
            if (mean := subject.estimates[number].mean) is not None
        ]
        middle = (min(row["accuracy"] for row in rows) + max(row["accuracy"] for row in rows)) / 2
        base = alt.Chart().encode(
            alt.X("k:O", title="k, heads per node", axis=alt.Axis(labelAngle=0)),
            alt.Y("of:N", title=None, sort=list(names.values())),
        )
        tiles = base.mark_rect().encode(
            alt.Color("accuracy:Q", title="accuracy, %", scale=alt.Scale(scheme="cividis"), legend=None)
        )
        ink = alt.condition(f"datum.accuracy > {middle}", alt.value("black"), alt.value("white"))
        text = base.mark_text(fontSize=13).encode(alt.Text("accuracy:Q", format=".1f"), color=ink)
        panels.append(Panel(alt.layer(tiles, text), rows, f"{part.title}: highest accuracy, %", 150))
    return panels


def heat_numbers(runs: StudyRuns) -> list[PublishedComparison]:
    """The smallest cluster with one head, and which k serves it best."""
    (part,) = runs.by_part
    comparison = runs.comparison(part)
    last = f"highest_cluster_{len(comparison.clusters) - 1}"
    by_k = {subject.runs[0].heads: subject.estimates[last] for subject in comparison.subjects}
    best = max(by_k, key=lambda k: by_k[k].mean or 0.0)
    return [
        PublishedComparison("smallest cluster with k = 1, highest accuracy in %", by_k.get(1), ONE_HEAD_MINORITY, 100),
        PublishedComparison("best k for the smallest cluster", Estimate([float(best)]), 3.0, 1, 0),
    ]


def shares(runs: StudyRuns) -> list[Panel]:
    """Per cluster, who chose which head in the first rounds; the first seed."""
    panels = []
    for part in runs.by_part:
        comparison = runs.comparison(part)
        run = comparison.subjects[0].runs[0]
        warmup = int(run.experiment["algorithm"]["warmup"])  # in which there is no choice
        rows = [row for row in facts.head_shares(comparison, run, FIRST_ROUNDS) if row["round"] > warmup]
        panels += charts.shares_panels(comparison.clusters, run, rows)
    return panels


def share_numbers(runs: StudyRuns) -> list[PublishedComparison]:
    """When the smallest cluster, and everyone, had settled; of the run that is drawn, as in the paper."""
    (part,) = runs.by_part
    run = runs.comparison(part).subjects[0].runs[0]
    minority = Estimate([_agreed_from(run, part.clusters.count(":"))])
    heads = settlement(run)
    rest = Estimate([None if heads is None or heads.settling_round is None else float(heads.settling_round)])
    return [
        PublishedComparison(
            "round in which the smallest cluster had agreed on a head", minority, float(SETTLED_MINORITY), 1, 0
        ),
        PublishedComparison("round in which all had settled", rest, float(SETTLED_ALL), 1, 0),
    ]


def _agreed_from(run: History, cluster: int) -> float | None:
    """The first round from which all nodes of a cluster chose one and the same head until the end; the
    warm-up, in which there is no choice, does not count."""
    if run.choice is None or run.cluster is None:
        return None
    mine = run.choice[:, run.cluster == cluster]
    final = mine[-1, 0]
    differs = np.nonzero((mine != final).any(1))[0]
    first = int(differs[-1]) + 2 if len(differs) else 1
    return float(max(first, int(run.experiment["algorithm"].get("warmup", 0)) + 1)) if first <= len(mine) else None


def share_sentences(runs: StudyRuns) -> list[str]:
    """Seeds that never settled, and why rounds may differ from the paper's."""
    (part,) = runs.by_part
    never = [run.seed for run in runs.comparison(part).subjects[0].runs if not settles(run)]
    sentences = ["The paper's choices used ten times the samples."]
    return [*sentences, f"Never settled: seed {', '.join(map(str, never))}."] if never else sentences


def losses(runs: StudyRuns) -> list[Panel]:
    """Mean loss of every head per cluster over rounds, of a run that settled and of one that did not."""
    panels = []
    for part in runs.by_part:
        comparison = runs.comparison(part)
        for word, wanted in (("settled", True), ("never settled", False)):
            run = next((run for run in comparison.runs if settles(run) is wanted), None)
            if run is None:
                continue
            mean = head_losses(run)
            for c, name in enumerate(comparison.clusters):
                rows = [
                    {"round": r + 1, "head": f"head {j}", "loss": round(float(value), 4)}
                    for r, row in enumerate(mean[:, c])
                    for j, value in enumerate(row)
                    if np.isfinite(value)
                ]
                panels.append(Panel(_loss_lines(run.heads), rows, f"{word}, seed {run.seed}: {name}"))
    return panels


def _loss_lines(heads: int) -> Any:
    names = [f"head {j}" for j in range(heads)]
    scale = alt.Scale(domain=names, range=theme.OKABE_ITO[:heads])
    return (
        alt.Chart()
        .mark_line(strokeWidth=1.5)
        .encode(
            alt.X("round:Q", scale=alt.Scale(nice=False, zero=False)),
            alt.Y("loss:Q", title="loss of each head", scale=alt.Scale(zero=False)),
            alt.Color("head:N", title=None, scale=scale),
        )
    )


def head_losses(run: History) -> Floats:
    """[R, G, k] mean loss of every head on what a cluster's nodes hold; NaN where none was scored."""
    if run.cluster is None:
        return np.zeros((0, 0, 0))
    losses = np.full((len(run.heard), len(run.cluster), run.heads), np.nan)
    for row in RunDirectory(run.path).rows:
        if row["kind"] == "round" and row.get("head_losses") is not None:
            losses[row["round"] - 1, row["node"]] = [np.nan if v is None else v for v in row["head_losses"]]
    # A round without scores (the warm-up) has none at any node, so a plain mean keeps it NaN.
    return np.stack([losses[:, run.cluster == c].mean(1) for c in range(int(run.cluster.max()) + 1)], 1)


def loss_sentences(runs: StudyRuns) -> list[str]:
    """Which of the two kinds of run could not be shown."""
    kinds = {settles(run) for part in runs.by_part for run in runs.comparison(part).runs}
    missing = [word for word, wanted in (("settled", True), ("unsettled", False)) if wanted not in kinds]
    return [f"No {word} run is among these seeds; give more with --seeds." for word in missing]
