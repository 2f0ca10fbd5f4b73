"""What the clusters see: sample images, only where showing them harms nobody."""

from __future__ import annotations

import base64
import tempfile
from pathlib import Path
from typing import NamedTuple

from facade.data.errors import DataError
from facade.errors import ExperimentError
from facade.report.facts import Comparison

PUBLIC = {"digits", "cifar10", "imagenette"}
"""Built-in sources whose images anybody may see. Images of any other source may be patients."""


class Samples(NamedTuple):
    """A picture with a row of images per cluster, or why there is none."""

    png: str = ""
    """The picture in base64; empty if there is none."""
    refusal: str = ""
    """What to tell who asked for it and does not get it."""


def samples(comparison: Comparison, asked: bool) -> Samples:
    """What the clusters of a comparison see; of data that are not public only when it was asked for."""
    source = comparison.runs[0].experiment["data"]["source"]
    if source not in PUBLIC and not asked:
        return Samples()
    try:
        return Samples(png=base64.b64encode(_picture(comparison)).decode())
    except (DataError, ExperimentError) as error:
        return Samples(refusal=str(error) if asked else "")


def _picture(comparison: Comparison) -> bytes:
    from facade.data.load import load
    from facade.data.picture import draw
    from facade.experiment.config import Experiment

    described = Experiment.load(comparison.runs[0].path / "experiment.toml")
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "samples.png"
        draw(load(described.data, described.seed), path)
        return path.read_bytes()
