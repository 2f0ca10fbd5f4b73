"""The pictures of the reproduction's page: accuracy over rounds, and who found its head when."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import altair as alt
import numpy as np

from facade.analysis.statistics import settlement
from facade.paper import figures
from facade.paper.reproduction import SETTLING_ROUNDS, KeptRuns, Run
from facade.paper.settings import Part, Scale
from facade.paper.study import StudyRuns
from facade.report import panels
from facade.report.facts import Comparison, Rows, Subject, comparisons


def write(runs: list[Run], kept: KeptRuns, scale: Scale, directory: Path) -> dict[str, Path]:
    """Draw what can be drawn of the kept runs; the files by what they show, `accuracy` and `settling`."""
    pictures: dict[str, Path] = {}
    parts = {run.part: _compared(run.part, runs, kept) for run in runs if run.stage == "full"}
    present = {part: comparison for part, comparison in parts.items() if comparison is not None}
    if present:
        study_runs = StudyRuns({part: c.runs for part, c in present.items()}, scale, present)
        note = scale.note(tuple(present))
        curves = figures.curves(study_runs)
        caption = "One seed; the large mark at the end is the model after the final exchange."
        figure = panels.Figure("accuracy", "Accuracy of both clusters", caption, curves, len(present), note)
        pictures["accuracy"] = panels.write(figure, directory, "png")
    rows = _purity(runs, kept)
    if rows:
        figure = panels.Figure("settling", "Nodes at a head of their own cluster", "", [_strips(rows)], 1)
        pictures["settling"] = panels.write(figure, directory, "png")
    return pictures


def _compared(part: Part, runs: list[Run], kept: KeptRuns) -> Comparison | None:
    """The full-length runs of a part under the names the page gives them."""
    pairs = [(run, kept.get(run)) for run in runs if run.stage == "full" and run.part == part]
    histories = [history for _, history in pairs if history is not None]
    if not histories:
        return None
    (comparison,) = comparisons(histories)
    # Every run is a line of its own: a second seed is there because the first one did not settle.
    named = [Subject(_label(run), [history]) for run, history in pairs if history is not None]
    return replace(comparison, subjects=sorted(named, key=lambda subject: subject.label))


def _label(run: Run) -> str:
    """A label that begins with the algorithm's name, which gives it its colour."""
    _, _, rest = run.label.partition(", ")
    return f"{run.experiment.algorithm['name']} {rest}".strip()


def _purity(runs: list[Run], kept: KeptRuns) -> Rows:
    """Per run and round, the share of nodes at a head of their own cluster's, averaged over clusters."""
    rows: Rows = []
    for run in (run for run in runs if run.stage == "settling"):
        history = kept.get(run)
        heads = None if history is None else settlement(history)
        if heads is None:
            continue
        k = heads.shares.shape[2]
        # Heads are assigned to clusters one to one, in every round as it suits best.
        ways = [list(way) for way in itertools.permutations(range(k), heads.shares.shape[1])]
        own = np.max([heads.shares[:, range(len(way)), way].mean(1) for way in ways], 0)
        name = f"{run.part.clusters} {run.label}, seed {run.experiment.seed}"
        rows += [{"run": name, "round": t + 1, "share": round(100 * float(share), 1)} for t, share in enumerate(own)]
    return rows


def _strips(rows: Rows) -> panels.Panel:
    """A strip per run, a tile per round."""
    names = list(dict.fromkeys(row["run"] for row in rows))
    chart = (
        alt.Chart()
        .mark_rect()
        .encode(
            alt.X(
                "round:O", title="round", axis=alt.Axis(values=list(range(10, SETTLING_ROUNDS + 1, 10)), labelAngle=0)
            ),
            alt.Y("run:N", title=None, sort=names, axis=alt.Axis(labelLimit=200)),
            alt.Color("share:Q", title="%, mean over clusters", scale=alt.Scale(scheme="cividis", domain=[30, 100])),
        )
    )
    return panels.Panel(chart, rows, "", 14 * len(names), wide=True, width=560)
