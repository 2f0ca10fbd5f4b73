"""Real data, where they are: FACADE_DATA names the directory (default: data/)."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from facade import Experiment, run
from facade.data import decoded
from facade.data.load import load
from facade.data.section import DataSection
from surroundings import EXPERIMENTS

ROOT = Path(os.environ.get("FACADE_DATA", "data"))


def needs(*names):
    there = any((ROOT / name).exists() for name in names)
    return pytest.mark.skipif(not there, reason=f"{' or '.join(names)} is not in {ROOT}; set FACADE_DATA")


cifar = needs("cifar-10-batches-bin", "cifar-10-binary.tar.gz")
imagenette = needs("imagenette2-160", "imagenette2-320", "imagenette2")
mammals = needs("tiny-imagenet-mammals")


def federation(source, clusters, **fields):
    return load(DataSection(**({"source": source, "clusters": clusters, "root": str(ROOT)} | fields)), seed=1)


def sizes(made):
    return sorted({len(rows) for rows in made.training.rows})


@cifar
@pytest.mark.parametrize(
    ("partition", "validation", "expected"),
    [("stratified", 0.0, 1560), ("stratified", 0.1, 1400), ("shuffled", 0.0, 1562), ("shuffled", 0.1, 1406)],
)
def test_cifar10_nodes_have_the_papers_sizes(partition, validation, expected):
    made = federation("cifar10", "30:2", partition=partition, validation=validation)
    assert sizes(made) == [expected]
    assert made.leftover == 50_000 - 32 * expected - int(50_000 * validation)
    assert [len(test) for test in made.tests] == [10_000, 10_000]
    assert torch.equal(made.tests[1].x, made.tests[0].x.flip(-2, -1))


@cifar
def test_cifar10_labels_divide_vehicles_and_animals():
    made = federation("cifar10", "30:2", skew="labels")
    assert sizes(made) == [4 * 166, 6 * 2500]
    assert [len(test) for test in made.tests] == [4000, 6000]


@cifar
def test_cifar10_is_held_once_in_memory():
    program = (
        "import resource, sys; from facade.experiment.sections import DataSection; from facade.data.load import load\n"
        "load(DataSection(source='digits', clusters='2:2'), 1)\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "load(DataSection(source='cifar10', clusters='30:2', root=sys.argv[1]), 1)\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(ROOT)], capture_output=True, text=True, check=True)
    # 147 MB for training, 29 each for the two test sets and for the file being read.
    assert float(done.stdout) < 300


@imagenette
@pytest.mark.parametrize(("partition", "expected"), [("stratified", 390), ("shuffled", 394)])
def test_imagenette_nodes_have_the_papers_sizes(partition, expected):
    made = federation("imagenette", "20:4", partition=partition)
    assert sizes(made) == [expected]
    assert made.shape == (3, 64, 64)
    assert [len(test) for test in made.tests] == [3925, 3925]
    assert "golf ball" in made.classes


@mammals
def test_a_folder_of_mammals_is_read_alike_from_its_images_and_from_the_cache(tmp_path, monkeypatch):
    (tmp_path / "mammals").symlink_to((ROOT / "tiny-imagenet-mammals").resolve())  # below a root without a cache
    first = federation("folder", "14:2", path="mammals", root=str(tmp_path))
    monkeypatch.setattr(decoded, "_fill", lambda *_: pytest.fail("decoded again"))
    second = federation("folder", "14:2", path="mammals", root=str(tmp_path))
    assert torch.equal(first.training.samples.x, second.training.samples.x)
    assert torch.equal(first.tests[1].x, second.tests[1].x)
    assert len(second.classes) == 26
    assert sizes(second) == [806]


@needs("retinamnist.npz")
def test_retinamnist_has_five_grades_in_colour():
    made = federation("npz", "6:2", path="retinamnist.npz", skew="colour")
    assert made.shape == (3, 28, 28)
    assert len(made.classes) == 5
    assert [len(test) for test in made.tests] == [400, 400]


@needs("pneumoniamnist.npz")
def test_pneumoniamnist_is_gray():
    made = federation("npz", "6:2", path="pneumoniamnist.npz")
    assert made.shape == (1, 28, 28)
    assert len(made.classes) == 2


@needs("retinamnist.npz")
def test_a_few_rounds_on_real_data_run():
    settings = [
        f"data.root={ROOT}", "data.source=npz", "data.path=retinamnist.npz", "data.clusters=3:1", "topology.degree=2",
        "training.rounds=3", "training.steps=2", "algorithm.warmup=1", "evaluation.every=3",
    ]  # fmt: skip
    result = run(Experiment.load(EXPERIMENTS / "cifar10-30-2.toml", settings))
    losses = [[row["train_loss"] for row in result.rows if (row["kind"], row["round"]) == ("round", r)] for r in (1, 3)]
    assert np.mean(losses[1]) < 0.8 * np.mean(losses[0])
    grades = np.bincount(federation("npz", "3:1", path="retinamnist.npz").tests[0].y).tolist()
    for row in result.rows:
        assert row["kind"] == "round" or np.sum(row["confusion"], 1).tolist() == grades


@pytest.mark.parametrize(
    ("source", "place", "clusters", "rows", "ill"),
    [
        ("landmine", "LandmineData.mat", "15:14", [690, 445], 904),
        ("heart-disease", "heart-disease", "4", [303, 294, 123, 200], 509),
        ("office-caltech10-surf", "office-caltech10-surf", "1:1:1:1", [958, 1123, 157, 295], None),
        ("office-caltech10", "office_caltech10_64.zip", "1:1:1:1", [958, 1123, 157, 295], None),
        ("pacs", "pacs64.zip", "1:1:1:1", [2048, 2344, 1670, 3929], None),
    ],
)
def test_real_federations_have_their_published_sizes(source, place, clusters, rows, ill):
    if not (ROOT / place).exists():
        pytest.skip(f"{place} is not in {ROOT}; set FACADE_DATA")
    made = federation(source, clusters, skew="none", partition="natural", size=16)
    held = [len(train) + len(test) for train, test in zip(made.training.rows, made.tests, strict=True)]
    assert (held if len(rows) == made.n else [max(held), min(held)]) == rows
    positive = int(made.training.samples.y.sum()) + sum(int(test.y.sum()) for test in made.tests)
    assert ill is None or positive == ill
    assert made.sites is not None
