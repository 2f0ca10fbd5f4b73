"""A figure is a few panels; a panel is an Altair chart and the rows it draws. Pages lay panels out side
by side or below each other, files put them in one picture."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from facade.errors import ExperimentError, need
from facade.files import store
from facade.report import theme
from facade.report.facts import Rows

if TYPE_CHECKING:
    import altair as alt

FORMATS = ("pdf", "svg", "png")
WIDTH = 300
"""Pixels of a panel in a file; on a page it is as wide as there is room."""
VEGA_LITE = "6.1"
"""The version that turns charts into pictures, and that pages carry."""
_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
"""A name, not an address that anybody visits."""


@dataclass(frozen=True)
class Panel:
    """One chart."""

    chart: alt.Chart | alt.LayerChart | alt.FacetChart
    rows: Rows
    title: str = ""
    height: int = 220
    wide: bool = False
    """Whether it takes the whole width of a page."""
    width: int = WIDTH
    """Pixels in a file."""

    def spec(self, width: int | str = "container") -> dict[str, Any]:
        """Vega-Lite, with the rows inside."""
        spec: dict[str, Any] = self.chart.to_dict(validate=False)
        spec.pop("config", None)
        for layer in spec.get("layer", ()):
            layer.pop("data", None)  # all layers draw the panel's rows
        spec |= {"$schema": _SCHEMA, "width": width, "height": self.height, "data": {"values": self.rows}}
        if self.title:
            spec["title"] = self.title
        if width == "container":
            spec["autosize"] = {"type": "fit-x", "contains": "padding"}
        return spec


@dataclass(frozen=True)
class Figure:
    """Panels that belong together."""

    id: str
    title: str
    caption: str
    panels: list[Panel]
    columns: int = 2
    note: str = ""
    """What must be read with it, such as a reduction; written on the figure."""

    def spec(self) -> dict[str, Any]:
        """All panels in one Vega-Lite picture, for files."""
        parts = [panel.spec(panel.width) for panel in self.panels]
        for part in parts:
            part.pop("$schema")
        columns = min(self.columns, len(parts))
        below = textwrap.wrap(self.note or self.caption, columns * max(panel.width for panel in self.panels) // 6)
        about = {"text": self.title, "offset": 16, "subtitle": below} | (
            {"subtitleColor": "#A00000"} if self.note else {}
        )
        whole = {"concat": parts, "columns": columns, "spacing": 28}
        separate = {"resolve": {"scale": dict.fromkeys(("color", "shape", "strokeDash", "size"), "independent")}}
        return {"$schema": _SCHEMA, "title": about, "padding": 12} | whole | separate | {"config": theme.config()}


def picture(figure: Figure, format: str, scale: float = 2.0) -> bytes:
    """The figure as a file's content; no browser is needed."""
    import vl_convert

    if format not in FORMATS:
        raise ExperimentError(f"`format` {format} is not possible; expected one of {', '.join(FORMATS)}")
    spec = figure.spec()
    if format == "svg":
        return vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE).encode()
    if format == "pdf":
        return vl_convert.vegalite_to_pdf(spec, vl_version=VEGA_LITE)
    return vl_convert.vegalite_to_png(spec, vl_version=VEGA_LITE, scale=scale)


def write(figure: Figure, directory: Path, format: str) -> Path:
    """Write the figure as DIRECTORY/ID.FORMAT."""
    content = picture(figure, format)
    path = directory / f"{figure.id}.{format}"
    store.replace(path, content)
    return path


def need_plotting() -> None:
    """Refuse in one sentence where the libraries that draw are not installed."""
    need("report", "drawing", "altair", "vl_convert", "jinja2")
