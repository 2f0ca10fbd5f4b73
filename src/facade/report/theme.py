"""Colours that colour-blind people can tell apart, and how charts look on light and dark pages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

OKABE_ITO = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#8C8C8C"]
"""The palette of Okabe and Ito, its black replaced by a gray that shows on light and dark pages."""

ALGORITHM_COLOURS = {
    "facade": "#D55E00",
    "el": "#0072B2",
    "dpsgd": "#56B4E9",
    "dac": "#009E73",
    "deprl": "#E69F00",
    "ifca": "#CC79A7",
    "local": "#8C8C8C",
}
"""An algorithm has the same colour in every figure."""

_SPARE = ["#CC79A7", "#56B4E9", "#F0E442", "#8C8C8C", "#E69F00", "#009E73", "#0072B2", "#D55E00"]
"""The same palette, for experiments whose algorithm's colour is taken."""

SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left"]

_LEGEND_WIDTH, _SYMBOL_WIDTH, _LETTER_WIDTH = 330, 24, 6
"""Pixels: of a panel on a telephone, of a legend's mark, and of a letter beside it, more or less."""

CLUSTER_COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#8C8C8C"]


def colours(labels: Iterable[str]) -> dict[str, str]:
    """A colour per experiment: its algorithm's own for the first of every algorithm, then those of the
    algorithms that are seen least, so that one figure's colours suit another's."""
    names = list(labels)
    given: dict[str, str] = {}
    for name in names:
        own = ALGORITHM_COLOURS.get(name.split(" ")[0])
        if own is not None and own not in given.values():
            given[name] = own
    spare = [colour for colour in _SPARE if colour not in given.values()] or OKABE_ITO
    for number, name in enumerate([name for name in names if name not in given]):
        given[name] = spare[number % len(spare)]
    return {name: given[name] for name in names}


def legend_columns(labels: Iterable[str]) -> int:
    """How many labels fit side by side below the narrowest panel."""
    longest = max((len(label) for label in labels), default=1)
    return max(1, min(4, _LEGEND_WIDTH // (_SYMBOL_WIDTH + _LETTER_WIDTH * longest)))


def cluster_colours(names: Iterable[str]) -> dict[str, str]:
    """A colour per cluster, in their order."""
    return {name: CLUSTER_COLOURS[i % len(CLUSTER_COLOURS)] for i, name in enumerate(names)}


def config(dark: bool = False) -> dict[str, Any]:
    """Vega-Lite's configuration of every chart; the background is the page's."""
    text, faint = ("#e6e6e6", "#363c44") if dark else ("#1f2328", "#d8dee4")
    axis = {
        "labelColor": text, "titleColor": text, "gridColor": faint, "domainColor": faint, "tickColor": faint,
        "titleFontWeight": "normal", "labelFontSize": 11, "titleFontSize": 12, "gridOpacity": 0.7,
    }  # fmt: skip
    return {
        "background": "transparent" if dark else "white",
        "font": "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif",
        "axis": axis,
        "legend": {
            "labelColor": text, "titleColor": text, "orient": "bottom", "columns": 4, "labelLimit": 320,
            "titleFontWeight": "normal", "symbolStrokeWidth": 2,
            "symbolOpacity": 1,
        },
        "title": {"color": text, "subtitleColor": text, "fontSize": 13, "fontWeight": 600, "anchor": "start"},
        "header": {"labelColor": text, "titleColor": text},
        "text": {"color": text},
        "rule": {"color": text},
        "view": {"stroke": None},
        "line": {"strokeWidth": 2},
    }  # fmt: skip
