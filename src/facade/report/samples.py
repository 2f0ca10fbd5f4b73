"""What the clusters see: sample images, only where showing them harms nobody."""

from __future__ import annotations

import base64
import html
import tempfile
from pathlib import Path

from facade.data.errors import DataError
from facade.errors import ExperimentError
from facade.report.facts import Comparison

PUBLIC = {"digits", "cifar10", "imagenette"}
"""Built-in sources whose images anybody may see. Images of any other source may be patients."""


def samples(comparison: Comparison, asked: bool) -> str:
    """A picture with a row of images per cluster, or nothing; of data that are not public only when
    it was asked for."""
    experiment = comparison.runs[0].experiment
    source = experiment["data"]["source"]
    if source not in PUBLIC and not asked:
        return ""
    try:
        picture = _picture(comparison)
    except (DataError, ExperimentError) as error:
        return f'<p class="note">No sample images: {html.escape(str(error))}.</p>' if asked else ""
    encoded = base64.b64encode(picture).decode()
    return (
        "<figure><figcaption>What each cluster sees: training images, one of each class.</figcaption>"
        f'<img alt="Sample images of every cluster" src="data:image/png;base64,{encoded}"></figure>'
    )


def _picture(comparison: Comparison) -> bytes:
    from facade.data.load import load
    from facade.data.picture import draw
    from facade.experiment.config import Experiment

    described = Experiment.load(comparison.runs[0].path / "experiment.toml")
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "samples.png"
        draw(load(described.data, described.seed), path)
        return path.read_bytes()
