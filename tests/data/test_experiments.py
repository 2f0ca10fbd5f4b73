import warnings

import pytest

from facade.algorithms import ALGORITHMS
from facade.data.partition import PARTITIONS
from facade.data.skews import SKEWS
from facade.data.sources import SOURCES
from facade.experiment.algorithm_table import build_algorithm
from facade.experiment.config import Experiment
from facade.learning.models import MODELS
from surroundings import EXPERIMENTS

FILES = sorted(EXPERIMENTS.glob("*.toml"))

RATES = {
    "cifar10": {"facade": 0.01, "ifca": 0.01, "el": 0.05, "dpsgd": 0.05, "local": 0.05, "dac": 0.005, "deprl": 0.01},
    "imagenette": {
        "facade": 0.0003, "ifca": 0.0003, "el": 0.001, "dpsgd": 0.001, "local": 0.001, "dac": 0.001, "deprl": 0.0005,
    },
    "flickr-mammals": {"facade": 0.3, "ifca": 0.3, "el": 0.1, "dpsgd": 0.1, "local": 0.1, "dac": 0.3, "deprl": 0.1},
}  # fmt: skip
SCALES = {"cifar10": (1200, 10, 32), "imagenette": (800, 10, 24), "flickr-mammals": (1200, 40, 16)}
WARMUP = {"cifar10": 10, "imagenette": 0, "flickr-mammals": 200}


def test_every_setting_of_the_paper_is_there():
    names = {path.stem for path in FILES}
    rotated = ["16-16", "24-8", "30-2", "20-10-2"]
    cifar = rotated + [f"labels-{r}" for r in rotated[:3]] + ["colour-8-8-8-8", "colour-20-6-4-2"]
    expected = {f"cifar10-{r}" for r in cifar}
    expected |= {f"imagenette-{r}" for r in ("12-12", "18-6", "20-4")}
    expected |= {"flickr-mammals-8-8", "flickr-mammals-14-2", "digits-30-2"}
    assert expected <= names


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_experiment_resolves_for_every_algorithm(path, algorithm):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        experiment = Experiment.load(path, [f"algorithm.name={algorithm}"])
    build_algorithm(experiment.algorithm)
    data = experiment.data
    assert data.source in SOURCES
    assert data.partition in PARTITIONS
    assert data.skew in SKEWS
    assert experiment.model.name in MODELS
    if data.partition != "natural":
        assert data.clusters.replace(":", "-") in path.stem
    assert Experiment.of({"name": experiment.name, **experiment.model_dump()}).hash == experiment.hash
    if data.source in RATES:
        training = experiment.training
        assert training.lr == RATES[data.source][algorithm]
        assert (training.rounds, training.steps, experiment.n) == SCALES[data.source]
        assert (training.batch, experiment.evaluation.every, experiment.topology.degree) == (8, 80, 4)
    if algorithm == "facade" and data.partition != "natural":
        assert experiment.algorithm["heads"] == len(data.sizes)
        assert experiment.algorithm["warmup"] == WARMUP.get(data.source, 10)
