"""One page that holds everything: it works without a network and can be passed round as a file."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any

from facade.analysis.experiment_names import short_keys
from facade.analysis.site_table import site_tables
from facade.analysis.table import Table, grouped, pairs, tabulate
from facade.errors import RunDirectoryError
from facade.experiment.setup import large_batch
from facade.files import store
from facade.report import charts
from facade.report.facts import Comparison, comparisons, subject_labels
from facade.report.page_parts import fitting, letters
from facade.report.panels import Figure
from facade.report.protection import protection
from facade.report.samples import samples
from facade.report.template import figure_facts, render
from facade.report.verdicts import priors, verdicts
from facade.runs.history import History, unsealed
from facade.runs.run_directory import RunDirectory


def report(runs: Sequence[History], show_samples: bool = False) -> str:
    """The page of some runs."""
    compared, table = comparisons(runs), tabulate(runs)
    drawn = [charts.of_comparison(comparison) for comparison in compared]
    numbers = itertools.count()
    facts = {
        "title": compared[0].title if len(compared) == 1 else f"{len(compared)} comparisons",
        "runs": len(runs),
        "seeds": sorted({run.seed for run in runs}),
        "table": _table(table),
        "sites": _sites(table),
        "comparisons": [
            _facts(comparison, show_samples)
            | {"figures": [figure_facts(figure, f"c{number}", numbers) for figure in drawn[number]]}
            for number, comparison in enumerate(compared)
        ],
        "configurations": _configurations(runs),
        "environments": _environments(runs),
        "commands": _commands(runs),
    }
    return render("page.html", [figure for some in drawn for figure in some], facts)


def write(runs: Sequence[History], path: Path, show_samples: bool = False) -> Path:
    """Write the page of some runs."""
    content = report(runs, show_samples).encode()
    store.replace(path, content)
    return path


def figures(runs: Sequence[History]) -> list[Figure]:
    """All figures of the page, with names of their own."""
    compared = comparisons(runs)
    return [
        replace(figure, id=f"{number}-{figure.id}" if len(compared) > 1 else figure.id)
        for number, comparison in enumerate(compared)
        for figure in charts.of_comparison(comparison)
    ]


# What the template is given


def _table(table: Table) -> dict[str, Any]:
    """The table with intervals, in parts that fit the page; a number that leads is marked, and so is FACADE's line."""
    keys = [*short_keys(list(table.lines[0].label)), "seeds"]
    labels = [[*line.label.values(), str(len(line.seeds))] for line in table.lines]
    cells = [
        [
            (*pair, i in table.leading.get(column.name, ()))
            for column, pair in zip(table.columns, pairs(table, line), strict=True)
        ]
        for i, line in enumerate(table.lines)
    ]
    columns = [[(column.heading, ""), *(row[j][:2] for row in cells)] for j, column in enumerate(table.columns)]
    lines = [
        {"label": label, "numbers": row, "ours": line.ours}
        for label, row, line in zip(labels, cells, table.lines, strict=True)
    ]
    texts = [list(column) for column in zip(keys, *labels, strict=True)]
    return {
        "label_headings": [(key, letters(column)) for key, column in zip(keys, texts, strict=True)],
        "headings": [column.heading for column in table.columns],
        "lines": lines,
        "parts": fitting(texts, columns),
        "note": table.note,
    }


def _sites(table: Table) -> list[dict[str, Any]]:
    """Every site, where clusters are not known, in parts that fit the page."""
    return [
        sites._asdict()
        | {"letters": letters(["site", *sites.names])}
        | {"parts": fitting([["site", *sites.names]], [[(c.heading, ""), *c.cells] for c in sites.columns])}
        for sites in site_tables(table)
    ]


def _facts(comparison: Comparison, show_samples: bool) -> dict[str, Any]:
    """What the page says of a comparison beside its figures."""
    notes = list(dict.fromkeys(note for run in comparison.runs for note in run.data.get("notes", [])))
    if any(run.data.get("overlapping") for run in comparison.runs):
        notes.append("nodes hold copies of the same images: good for studies of scale, not of accuracy")
    batches = [large_batch(run.experiment["training"]["batch"], run.data["images"]) for run in comparison.runs]
    notes += dict.fromkeys(word for word in batches if word is not None)
    if word := unsealed(comparison.runs):
        notes.append(word)
    return {
        "title": comparison.title,
        "verdicts": verdicts(comparison),
        "notes": notes,
        "priors": priors(comparison),
        "protection": protection(comparison),
        "samples": samples(comparison, show_samples),
        "who": "site" if comparison.of_sites else "cluster",
        "with_local": any(run.algorithm == "local" for run in comparison.runs),
    }


# What one needs to do it again


def _configurations(runs: Sequence[History]) -> list[dict[str, str]]:
    """Every experiment, with its seeds and its file."""
    groups = grouped(runs)
    configurations = []
    for label, group in zip(subject_labels(groups), groups, strict=True):
        run, seeds = group[0], ", ".join(str(run.seed) for run in group)
        title = f"{run.experiment['name']}: {label}, seed{'s' if len(group) > 1 else ''} {seeds}"
        configurations.append({"title": title, "toml": (run.path / "experiment.toml").read_text()})
    return configurations


def _environments(runs: Sequence[History]) -> list[dict[str, Any]]:
    """Every different environment, and how many runs were computed in it."""
    counts: dict[str, int] = {}
    for run in runs:
        try:
            environment = json.dumps(RunDirectory(run.path).read("environment.json"))
        except RunDirectoryError:  # rows alone make a report
            continue
        counts[environment] = counts.get(environment, 0) + 1
    return [{"runs": count, "facts": _environment(json.loads(text))} for text, count in counts.items()]


def _environment(facts: dict[str, Any]) -> dict[str, Any]:
    """An environment by name of fact; that of every part of a run that was continued is one fact."""
    for part in facts.pop("continued", []):
        after = part.pop("after_round")
        facts[f"after round {after}"] = ", ".join(f"{key} {value}" for key, value in part.items())
    return facts


def _commands(runs: Sequence[History]) -> list[str]:
    """A command for every experiment."""
    return [
        f"facade run {quote(f'{name}.toml')} --set seed={group[0].seed} --out {quote(name)}"
        for group in grouped(runs)
        for name in [group[0].path.resolve().name]
    ]
