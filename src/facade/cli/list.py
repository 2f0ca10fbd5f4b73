"""`facade list`: everything that has a name."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import textwrap
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer
from rich.table import Table

from facade.cli.console import out
from facade.core.names import look_up

Line = tuple[str, str, str]


def _first_line(documented: Any) -> str:
    return (documented.__doc__ or "").strip().splitlines()[0]


def _fields(cls: Any, implied: Mapping[str, Any] = MappingProxyType({})) -> str:
    return ", ".join(f"{f.name} = {_shown(implied.get(f.name, f.default))}" for f in dataclasses.fields(cls))


def _sentence(documented: Any) -> str:
    """The first sentence of what is written below a class, which may take several lines."""
    return " ".join((documented.__doc__ or "").split("\n\n")[0].split())


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')


def _algorithms() -> Iterator[Line]:
    from facade.algorithms import ALGORITHMS

    for name, entry in ALGORITHMS.items():
        yield name, entry.says, _fields(entry.algorithm, entry.implies.get("algorithm", {}))


def _datasets() -> Iterator[Line]:
    from facade.data.sources import SOURCES

    return _described(SOURCES)


def _skews() -> Iterator[Line]:
    from facade.data.skews import SKEWS

    return _described(SKEWS)


def _partitions() -> Iterator[Line]:
    from facade.data.partition import PARTITIONS

    return _described(PARTITIONS)


def _models() -> Iterator[Line]:
    from facade.learning.models import MODELS

    return _described(MODELS)


def _described(table: Mapping[str, Any]) -> Iterator[Line]:
    """Functions and classes without fields, by the first line of what is written below them."""
    return ((name, _first_line(entry), "") for name, entry in table.items())


def _topologies() -> Iterator[Line]:
    from facade.core.topology import TOPOLOGIES

    for name, topology in TOPOLOGIES.items():
        yield name, _first_line(topology), _fields(topology)


def _guards() -> Iterator[Line]:
    from facade.guards import GUARDS

    yield "none", "Use everything as it comes.", ""
    for name, guard in GUARDS.items():
        yield name, _sentence(guard), _numbers(guard)


def _attacks() -> Iterator[Line]:
    from facade.attacks import ATTACKS

    for name, attack in ATTACKS.items():
        all_seeing = " Sees all messages: runs in one piece only." if attack.omniscient else ""
        yield name, _sentence(attack) + all_seeing, _numbers(attack)


def _numbers(cls: Any) -> str:
    """The fields that are numbers, of classes whose others are set by the experiment or are rules themselves."""
    own = [field for field in dataclasses.fields(cls) if field.default is not dataclasses.MISSING]
    return ", ".join(f"{field.name} = {_shown(field.default)}" for field in own)


def _metrics() -> Iterator[Line]:
    from facade.analysis.metrics import METRICS

    for name, says in METRICS.items():
        yield name, says, ""


def _measures() -> Iterator[Line]:
    from facade.analysis.measures import MEASURES

    for name, measure in MEASURES.items():
        yield name, measure.says, ""


def _settings() -> Iterator[Line]:
    from facade.experiment.config import Experiment
    from facade.experiment.sections import SECTIONS

    descriptions, seed = _field_descriptions(Experiment), Experiment.model_fields["seed"]
    yield "name", descriptions["name"], "a text = the file's name"
    yield "seed", descriptions["seed"], f"{_kind(seed.annotation)} = {seed.default}"
    for section, model in SECTIONS.items():
        descriptions = _field_descriptions(model)
        for key, field in model.model_fields.items():
            default = "" if field.is_required() else f" = {_shown(field.get_default(call_default_factory=True))}"
            yield f"{section}.{key}", descriptions[key], f"{_kind(field.annotation)}{default}"
    yield "algorithm.name", "One of `facade list algorithms`, or module:Class of your own.", 'a text = "facade"'
    yield from _settings_of_algorithms()
    yield "override", "What holds for one algorithm alone: override.el.training.lr, for example.", "a table"


def _settings_of_algorithms() -> Iterator[Line]:
    """Every field of an algorithm, and whose it is."""
    from facade.algorithms import ALGORITHMS

    who: dict[Line, list[str]] = {}
    for name, entry in ALGORITHMS.items():
        descriptions, kinds = _field_descriptions(entry.algorithm), get_type_hints(entry.algorithm)
        implied = entry.implies.get("algorithm", {})
        for own in dataclasses.fields(entry.algorithm):
            values = f"{_kind(kinds[own.name])} = {_shown(implied.get(own.name, own.default))}"
            who.setdefault((f"algorithm.{own.name}", descriptions[own.name], values), []).append(name)
    for (key, text, values), names in who.items():
        yield key, f"{text} ({', '.join(names)})", values


def _field_descriptions(cls: type) -> dict[str, str]:
    """The docstring below each annotated field of a class and of those it is derived from."""
    descriptions: dict[str, str] = {}
    for part in reversed(cls.__mro__[:-1]):
        if not part.__module__.startswith("facade."):
            continue
        (described,) = ast.parse(textwrap.dedent(inspect.getsource(part))).body
        for field, below in itertools.pairwise(getattr(described, "body", [])):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    descriptions[name] = " ".join(text.split())
    return descriptions


def _kind(annotation: Any) -> str:
    """What a value may be: a type in words, or all that are possible."""
    words: dict[Any, str] = {int: "an integer", float: "a number", str: "a text", bool: "true or false"}
    if annotation in words:
        return words[annotation]
    parts = get_args(annotation)
    if get_origin(annotation) is Literal:
        return " or ".join(_shown(part) for part in parts)
    if get_origin(annotation) is Annotated:
        return _kind(parts[0])
    if get_origin(annotation) is list:
        return "a list"
    return " or ".join(_kind(part) for part in parts)


LISTS = {
    "algorithms": _algorithms,
    "datasets": _datasets,
    "skews": _skews,
    "partitions": _partitions,
    "models": _models,
    "topologies": _topologies,
    "guards": _guards,
    "attacks": _attacks,
    "metrics": _metrics,
    "measures": _measures,
    "settings": _settings,
}


def list_(
    what: Annotated[
        str | None,
        typer.Argument(
            help="algorithms, datasets, skews, partitions, models, topologies, guards, attacks, metrics, measures"
            " or settings."
        ),
    ] = None,
) -> None:
    """What there is: names, what they do, fields and their defaults."""
    lists = {what: look_up("list", what, LISTS)} if what else LISTS
    for title, lines in lists.items():
        table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
        rows = list(lines())
        last = "values and default" if title == "settings" else "fields and defaults"
        for heading in ("name", "what it is", *([last] if any(r[2] for r in rows) else [])):
            table.add_column(heading, header_style="dim", overflow="fold")
        for row in rows:
            table.add_row(*row[: len(table.columns)])
        out.print(table)
        out.print()
