"""What a model card says of a model beside its accuracy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from facade.analysis import measures
from facade.analysis.measures import ACCURACY, MEASURES, Measure
from facade.runs.history import History


def measures_section(run: History, groups: Sequence[tuple[str, list[int]]], same: Sequence[int]) -> str:
    """A table of all measures but accuracy for the groups of nodes, by name, among which some deploy the model; empty
    where none was tested, or an older version tested them."""
    tested = {name: [i for i in members if i in set(same)] for name, members in groups}
    if run.final.beside is None or not any(tested.values()):
        return ""
    others = [measure for measure in MEASURES.values() if measure != ACCURACY]
    lines = [
        f"| tested on the data of | {' | '.join(measure.word for measure in others)} |",
        f"|---|{'--:|' * len(others)}",
    ]
    for name, nodes in tested.items():
        if nodes:
            lines.append(f"| {name} | {' | '.join(_cell(run, measure, nodes) for measure in others)} |")
    explained = "; ".join(f"{measure.word}: {measure.says}" for measure in others)
    return "\n".join(lines) + f"\n\nFor unequal classes, accuracy alone says little. {explained}. {_UNSURE}"


_UNSURE = (
    "A value without an interval is not certain: how sure it is cannot be told from the test samples, as of calibration"
    " errors and of an AUC of 1."
)


def _cell(run: History, measure: Measure, nodes: list[int]) -> str:
    """The mean over the nodes that have the measure, and its interval."""
    given = run.final.confusion[nodes], run.final.beside[nodes] if run.final.beside is not None else None
    value, variance = measures.values(measure, *given), measures.variances(measure, *given)
    known = ~np.isnan(value)
    if not known.any():
        return "-"
    mean, spread = measures.mean_over(value[known], variance[known], run.test_of[nodes][known])
    found = measures.interval(measure, mean, spread)
    ends = "" if found is None else f" [{measure.value(found[0])}, {measure.value(found[1])}]"
    return f"{measure.value(mean)}{ends}"
