"""From facts to a page that works without a network: the template, our styles and scripts, and the charts."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import Any

import jinja2

import facade
from facade.report import theme, vega
from facade.report.panels import Figure


def render(name: str, drawn: Sequence[Figure], facts: dict[str, Any]) -> str:
    """The page of a template; the specs of the figures are counted in their order."""
    return _template(name).render(
        version=facade.__version__,
        specs=[panel.spec() for figure in drawn for panel in figure.panels],
        themes={"light": theme.config() | {"background": "transparent"}, "dark": theme.config(dark=True)},
        style=_resource("page.css"),
        script=_resource("page.js"),
        vega=vega.bundle(),
        **facts,
    )


def figure_facts(figure: Figure, scope: str, numbers: Iterator[int]) -> dict[str, Any]:
    """A figure; its panels stand beside each other where there is room, and know the numbers of their specs."""
    return {
        "id": f"{scope}-{figure.id}",
        "title": figure.title,
        "caption": figure.caption,
        "note": figure.note,
        "panels": [{"wide": panel.wide, "number": next(numbers)} for panel in figure.panels],
    }


@functools.cache
def _template(name: str) -> jinja2.Template:
    """A template, which escapes every text that it is given."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("facade.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    return environment.get_template(name)


def _resource(name: str) -> str:
    return (files("facade.report") / "templates" / name).read_text(encoding="utf-8")
