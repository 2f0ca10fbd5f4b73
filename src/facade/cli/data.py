"""`facade data`: fetch data sets, and look at who holds what before running anything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from facade.cli.console import err, write
from facade.cli.options import DataRoot, ExperimentFile, Settings

if TYPE_CHECKING:
    from facade.core.types import Ids
    from facade.data.federation import Federation
    from facade.experiment.config import Experiment
    from facade.peers.trust.schema import Schema

app = typer.Typer(help="Fetch data sets and look at them.", no_args_is_help=True)

_MOST_LINES = 40
_MOST_CLASSES = 20


@app.command()
def get(
    name: Annotated[str, typer.Argument(help="cifar10, imagenette, retinamnist, ...")],
    root: DataRoot = Path("data"),
) -> None:
    """Download a data set, check it against its published checksum, and put it in its place."""
    from rich.progress import DownloadColumn, Progress, TimeRemainingColumn

    from facade.data.download import get as fetch

    with Progress("{task.description}", DownloadColumn(), TimeRemainingColumn(), console=err) as bar:
        task = bar.add_task(name, total=None, visible=False)
        place = fetch(name, root, lambda done, total: bar.update(task, completed=done, total=total, visible=True))
    write(f"{name} is in {place}\n")


@app.command()
def show(
    experiment: ExperimentFile,
    settings: Settings = None,
    out: Annotated[Path | None, typer.Option(help="Also write a PNG with sample images of every cluster.")] = None,
) -> None:
    """Print who holds how many images of which class, and what every cluster sees."""
    from facade.data.load import load
    from facade.data.picture import draw
    from facade.experiment.config import Experiment

    described = Experiment.load(experiment, settings or ())
    federation = load(described.data, described.seed)
    for line in summary(described, federation):
        write(f"{line}\n")
    if out is not None:
        draw(federation, out)
        write(f"\nWritten to {out}\n")


@app.command()
def schema(
    files: Annotated[list[Path], typer.Argument(help="TOML files with [data], or what this command wrote of others.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Where to write it.")] = None,
) -> None:
    """Say as JSON what data look like, or those of many sites together: classes, shape, scale, columns, categories.
    `facade network build --schema` makes it what all sites agree on. It holds no sample."""
    from facade.files import store
    from facade.peers.trust.schema import agreed

    found = agreed([_schema(path) for path in files]).model_dump_json(indent=1) + "\n"
    if output is None:
        write(found)
    else:
        store.replace(output, found.encode())
        write(f"Written: {output}\n")


def _schema(path: Path) -> Schema:
    """The schema in a JSON file, or of the data that a TOML file (an experiment, a site's node.toml) names."""
    import tomllib

    from pydantic import ValidationError

    from facade.data.load import read
    from facade.data.section import data_section
    from facade.errors import ExperimentError, first_mistake
    from facade.peers.trust.schema import Schema, schema_of_data

    try:
        text = path.read_text()
        if path.suffix == ".json":
            return Schema.model_validate_json(text)
        written = tomllib.loads(text).get("data")
        if not isinstance(written, dict):
            raise ExperimentError(f"{path} has no table [data], which says what data are meant; add it")
        return schema_of_data(read(data_section({"clusters": "1", "skew": "none"} | written)))
    except OSError as error:
        raise ExperimentError(f"{path} cannot be read ({error.strerror})") from None
    except ValidationError as error:
        raise ExperimentError(f"{path} is no schema: {first_mistake(error)}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ExperimentError(f"{path} is not valid TOML: {error}") from None


def summary(experiment: Experiment, federation: Federation) -> Iterator[str]:
    """What `facade data show` prints, line by line."""
    data = experiment.data
    held = sum(len(rows) for rows in federation.training.rows)
    what = {3: "images", 4: "volumes"}.get(len(federation.shape), "rows")
    who = f"{federation.n} nodes in clusters of {data.clusters}, skew {data.skew}, partition {data.partition}"
    if federation.cluster is None:
        who = f"{federation.n} {'nodes' if federation.sites is None else 'sites'}; which of them are alike is not known"
    yield f"{data.source}: {who}, seed {experiment.seed}"
    yield (
        f"{what} of {'x'.join(map(str, federation.shape))}; training {held:,} held, {federation.leftover:,} left over;"
        f" test {_sizes([len(t) for t in federation.tests])}"
        + (f"; validation {_sizes([len(v) for v in federation.validations])}" if federation.validations else "")
    )
    if federation.overlapping:
        yield f"nodes overlap: the same {what} may be held by several"
    for note in federation.notes:
        yield f"note: {note}"
    named = [f"{i} {name}" for i, name in enumerate(federation.classes) if name != str(i)]
    yield "classes: " + (", ".join(named) if named else f"0 to {len(federation.classes) - 1}")
    if federation.columns:
        yield f"inputs: {', '.join(name for column in federation.columns for name in column.inputs)}"
    yield ""
    yield from _table(federation, what)


def _sizes(sizes: list[int]) -> str:
    """Sizes of test sets, one per cluster or node."""
    if len(sizes) <= 4:
        return " and ".join(f"{size:,}" for size in sizes)
    return f"{min(sizes):,} to {max(sizes):,} in each of {len(sizes)} sets"


def _table(federation: Federation, what: str) -> Iterator[str]:
    """Nodes, or sites by name, by classes. Neighbouring nodes with the same numbers share a line; if lines are too many
    all the same, there is one per cluster."""
    import numpy as np

    classes = len(federation.classes)
    labels = federation.training.samples.y.numpy()
    counts = np.stack([np.bincount(labels[rows], minlength=classes) for rows in federation.training.rows])
    cluster = np.zeros(federation.n, np.int64) if federation.cluster is None else federation.cluster
    named = federation.sites if federation.n <= _MOST_LINES else None
    differs = (cluster[1:] != cluster[:-1]) | (counts[1:] != counts[:-1]).any(1) | (named is not None)
    groups = np.split(np.arange(federation.n), np.nonzero(differs)[0] + 1)
    if len(groups) > _MOST_LINES:
        groups = [np.nonzero(cluster == c)[0] for c in range(int(cluster.max()) + 1)]
    heads = [str(c) for c in range(classes)] if classes <= _MOST_CLASSES else ["classes", "of each class"]
    lines = [
        [
            _who(group) if named is None else named[group[0]],
            *([] if federation.cluster is None else [str(cluster[group[0]])]),
            *_cells(counts[group]),
        ]
        for group in groups
    ]
    known = [] if federation.cluster is None else ["cluster"]
    yield from _aligned([["node" if named is None else "site", *known, what, *heads], *lines])


def _who(nodes: Ids) -> str:
    if nodes[-1] - nodes[0] == len(nodes) - 1:
        return _range(nodes[0], nodes[-1])
    return f"{len(nodes)} nodes"


def _cells(counts: Ids) -> list[str]:
    """Numbers [nodes, classes] in words: samples, then those of every class; for many classes, how
    many of them a node has and how many samples of each."""
    sizes, present = counts.sum(1), counts > 0
    every = [_range(column.min(), column.max()) for column in counts.T]
    if len(every) > _MOST_CLASSES:
        every = [_range(present.sum(1).min(), present.sum(1).max()), _range(counts[present].min(), counts.max())]
    return [_range(sizes.min(), sizes.max()), *every]


def _range(least: int, most: int) -> str:
    """One number, or the smallest and largest of several."""
    return f"{least}" if least == most else f"{least}-{most}"


def _aligned(lines: list[list[str]]) -> Iterator[str]:
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    for line in lines:
        yield "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
