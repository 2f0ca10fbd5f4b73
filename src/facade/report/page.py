"""One page that holds everything: it works without a network and can be passed round as a file."""

from __future__ import annotations

import contextlib
import functools
import html
import json
import os
from collections.abc import Sequence
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from shlex import quote
from typing import Any

import facade
from facade.analysis.table import Table, grouped, pairs, tabulate
from facade.errors import RunDirectoryError, StorageError
from facade.files import store
from facade.report import charts, theme
from facade.report.facts import Comparison, comparisons, subject_labels
from facade.report.panels import VEGA_LITE, Figure
from facade.report.samples import samples
from facade.report.words import verdicts
from facade.runs.history import History
from facade.runs.run_directory import RunDirectory

# The page may run its own script and show its own images; it can fetch nothing.
_POLICY = "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data:"


class Page:
    """HTML in the making, and the charts it will draw."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.specs: list[dict[str, Any]] = []

    def add(self, text: str) -> None:
        """Append HTML."""
        self.parts.append(text)

    def figure(self, figure: Figure, scope: str) -> None:
        """Append a figure; its panels stand beside each other where there is room."""
        places = []
        for panel in figure.panels:
            places.append(
                f'<div class="chart{" wide-chart" if panel.wide else ""}" data-spec="{len(self.specs)}"></div>'
            )
            self.specs.append(panel.spec())
        note = f'<p class="note">{_text(figure.note)}</p>' if figure.note else ""
        self.add(
            f'<figure id="{scope}-{figure.id}"><h3>{_text(figure.title)}</h3>'
            f"<figcaption>{_text(figure.caption)}</figcaption>{note}"
            f'<div class="panels">{"".join(places)}</div></figure>'
        )

    def html(self, title: str) -> str:
        """The whole document."""
        configs = {"light": theme.config() | {"background": "transparent"}, "dark": theme.config(dark=True)}
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f'<title>{_text(title)}</title><link rel="icon" href="data:,"><style>{_resource("page.css")}</style>'
            f"</head><body>\n{''.join(self.parts)}\n"
            f'<script type="application/json" id="specs">{_json(self.specs)}</script>\n'
            f'<script type="application/json" id="configs">{_json(configs)}</script>\n'
            f"<script>{vega()}</script>\n<script>{_resource('page.js')}</script>\n</body></html>\n"
        )


def report(runs: Sequence[History], show_samples: bool = False) -> str:
    """The page of some runs."""
    page, found = Page(), comparisons(runs)
    seeds = sorted({run.seed for run in runs})
    title = found[0].title if len(found) == 1 else f"{len(found)} comparisons"
    page.add(
        f"<h1>Facade report: {_text(title)}</h1>"
        f'<p class="about">{_count(len(runs), "run")} of {_count(len(grouped(runs)), "experiment")},'
        f" seed{'s' if len(seeds) > 1 else ''} {_text(', '.join(map(str, seeds)))}. Written by facade"
        f" {_text(facade.__version__)}.</p>"
    )
    page.add("<h2>Verdict</h2>")
    for comparison in found:
        _add_verdicts(page, comparison, titled=len(found) > 1)
    page.add("<h2>All numbers</h2>" + table_html(tabulate(runs)))
    for number, comparison in enumerate(found):
        page.add(f"<h2>{_text(comparison.title)}</h2>" + _notes(comparison) + samples(comparison, show_samples))
        if not any(run.algorithm == "local" for run in comparison.runs):
            page.add('<p class="note">Who gains over training alone is not shown: no run of local is among these.</p>')
        for figure in charts.of_comparison(comparison):
            page.figure(figure, f"c{number}")
    page.add(_configuration(runs) + _environment(runs) + _reproduce(runs))
    return page.html(f"Facade: {title}")


def write(runs: Sequence[History], path: Path, show_samples: bool = False) -> Path:
    """Write the page of some runs."""
    content = report(runs, show_samples).encode()
    store.replace(path, content)
    return path


def figures(runs: Sequence[History]) -> list[Figure]:
    """All figures of the page, with names of their own."""
    found = comparisons(runs)
    made = []
    for number, comparison in enumerate(found):
        for figure in charts.of_comparison(comparison):
            prefix = f"{number}-" if len(found) > 1 else ""
            made.append(
                Figure(prefix + figure.id, figure.title, figure.caption, figure.panels, figure.columns, figure.note)
            )
    return made


def _add_verdicts(page: Page, comparison: Comparison, titled: bool) -> None:
    sentences = "".join(f"<li>{_text(sentence)}</li>" for sentence in verdicts(comparison))
    heading = f"<h3>{_text(comparison.title)}</h3>" if titled else ""
    page.add(f'{heading}<ul class="verdicts">{sentences}</ul>')


def table_html(table: Table) -> str:
    """The table with intervals."""
    names = [*table.lines[0].label, "seeds"]
    heads = [f'<th class="name">{_text(names[0])}</th>', *(f"<th>{_text(name)}</th>" for name in names[1:])]
    heads += [f"<th>{_text(column.heading)}</th>" for column in table.columns]
    body = []
    for line in table.lines:
        first, *rest = line.label.values()
        cells = [f'<td class="name">{_text(first)}</td>', *(f"<td>{_text(value)}</td>" for value in rest)]
        cells.append(f"<td>{len(line.seeds)}</td>")
        cells += [
            f"<td>{_text(shown)}{f'<small>{_text(below)}</small>' if below else ''}</td>"
            for shown, below in pairs(table, line)
        ]
        body.append(f"<tr>{''.join(cells)}</tr>")
    head = f"<thead><tr>{''.join(heads)}</tr></thead>"
    whole = f'<div class="wide"><table id="numbers">{head}<tbody>{"".join(body)}</tbody></table></div>'
    return f'{whole}<p class="note">{_text(table.note)}.</p>'


def _notes(comparison: Comparison) -> str:
    """What a reader must know of the data."""
    said = list(dict.fromkeys(note for run in comparison.runs for note in run.data.get("notes", [])))
    if any(run.data.get("overlapping") for run in comparison.runs):
        said.append("nodes hold copies of the same images: good for studies of scale, not of accuracy")
    return "".join(f'<p class="note">Mind: {_text(note)}.</p>' for note in said)


# What one needs to do it again


def _configuration(runs: Sequence[History]) -> str:
    blocks = ["<h2>Configuration</h2>"]
    groups = grouped(runs)
    for label, group in zip(subject_labels(groups), groups, strict=True):
        run, seeds = group[0], ", ".join(str(run.seed) for run in group)
        toml = (run.path / "experiment.toml").read_text()
        name = f"{run.experiment['name']}: {label}, seed{'s' if len(group) > 1 else ''} {seeds}"
        blocks.append(f"<details><summary>{_text(name)}</summary><pre>{_text(toml)}</pre></details>")
    return "".join(blocks)


def _environment(runs: Sequence[History]) -> str:
    kinds: dict[str, int] = {}
    for run in runs:
        try:
            found = json.dumps(RunDirectory(run.path).read("environment.json"))
        except RunDirectoryError:  # rows alone make a report
            continue
        kinds[found] = kinds.get(found, 0) + 1
    blocks = ["<h2>Environment</h2>"]
    for found, count in kinds.items():
        where = json.loads(found)
        for leg in where.pop("continued", []):
            after = leg.pop("after_round")
            where[f"after round {after}"] = ", ".join(f"{key} {value}" for key, value in leg.items())
        lines = "".join(f"<tr><td>{_text(k)}</td><td>{_text(str(v))}</td></tr>" for k, v in where.items())
        blocks.append(f'<p>{_count(count, "run")}:</p><div class="wide"><table class="plain">{lines}</table></div>')
    return "".join(blocks if kinds else [*blocks, "<p>Not recorded.</p>"])


def _reproduce(runs: Sequence[History]) -> str:
    lines = [
        f"facade run {quote(f'{name}.toml')} --set seed={group[0].seed} --out {quote(name)}"
        for group in grouped(runs)
        for name in [group[0].path.resolve().name]
    ]
    seeds = ",".join(map(str, sorted({run.seed for run in runs})))
    text = (
        "Save a configuration from above under the name that a line gives; the same experiment and seed give the same"
        f" rows to the bit. All seeds at once: facade sweep FILE.toml --seeds {seeds} --out DIR."
    )
    return f"<h2>How to reproduce</h2><p>{_text(text)}</p><pre>{_text(chr(10).join(lines))}</pre>"


# Pieces


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _text(text: str) -> str:
    return html.escape(text, quote=True)


def _json(content: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    return json.dumps(content, separators=(",", ":")).replace("<", "\\u003c")


@functools.cache
def _resource(name: str) -> str:
    return (files("facade.report") / name).read_text(encoding="utf-8")


@functools.cache
def vega() -> str:
    """The JavaScript that draws. Putting it together takes seconds, so it is kept in the user's cache."""
    import vl_convert

    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "facade"
    kept = cache / f"vega-{version('vl-convert-python')}-{VEGA_LITE}-embed.js"
    if kept.exists():
        return kept.read_text(encoding="utf-8")
    window = "window.vegaEmbed = vegaEmbed;"
    bundle = vl_convert.javascript_bundle(window, vl_version=VEGA_LITE).replace("</script", "<\\/script")
    with contextlib.suppress(StorageError):  # a home that cannot be written costs those seconds every time
        store.replace(kept, bundle.encode())
    return bundle
