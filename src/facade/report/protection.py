"""What attackers did in a comparison, and what guards did about it: a sentence or two per experiment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from facade.errors import RunDirectoryError
from facade.report.facts import Comparison, Subject
from facade.runs.guard_facts import backdoor_in_words, guard_in_words
from facade.runs.run_directory import RunDirectory


def protection(comparison: Comparison) -> list[str]:
    """Per subject with attackers or a guard: whose accuracies its numbers are, and what was dropped, in the mean over
    seeds."""
    told = [(subject.label, _sentences(subject, comparison.clusters)) for subject in comparison.subjects]
    return [f"{label}: {' '.join(sentences)}" for label, sentences in told if sentences]


def _sentences(subject: Subject, clusters: Sequence[str]) -> list[str]:
    attack = subject.runs[0].attack
    sentences = [] if attack is None else [f"{attack}."]
    results = [result for run in subject.runs if (result := _result(run.path)) is not None]
    for name, in_words in (("guard", guard_in_words), ("backdoor", backdoor_in_words)):
        each = [result[name] for result in results if name in result]
        if each:
            sentences.append(in_words(_mean(each), clusters))
    return sentences


def _result(path: Any) -> dict[str, Any] | None:
    try:
        return RunDirectory(path).read("result.json")
    except RunDirectoryError:  # rows alone make a report
        return None


def _mean(each: Sequence[Any]) -> Any:
    """The mean of numbers, table by table and place by place; None where one is not known."""
    first = each[0]
    if isinstance(first, dict):
        return {key: _mean([one.get(key) for one in each]) for key in first}
    if isinstance(first, list):
        return [_mean(list(places)) for places in zip(*each, strict=True)]
    if any(one is None for one in each):
        return None
    return first if isinstance(first, int) else float(np.mean(each))
