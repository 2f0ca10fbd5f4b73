"""Inputs of all kinds: how they are stored, how they become inputs, and that every algorithm trains on them."""

import importlib
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from data.makers import data
from facade import Experiment, Federation, run
from facade.algorithms import ALGORITHMS
from facade.data.errors import DataError
from facade.data.load import load, read
from facade.data.picture import draw
from facade.errors import ExperimentError
from facade.export.model_card import input_words
from facade.export.package import export
from facade.learning.inputs import Inputs
from facade.runs.federation_facts import federation_facts

RANDOM = np.random.default_rng(7)
Y = np.arange(48) % 2


def bright(*shape):
    """Noise, brighter where the class is 1, between 0 and 1."""
    return np.clip(RANDOM.random((len(Y), *shape)) * 0.5 + 0.4 * Y.reshape(-1, *[1] * len(shape)), 0, 1)


class Reader(nn.Module):
    """A model of tokens: the mean of what they are looked up as."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 6)
        self.head = nn.Linear(6, classes)

    def forward(self, x):
        return self.head(self.words(x).mean(1))


class Scanner(nn.Module):
    """A model of volumes."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.core = nn.Sequential(nn.Conv3d(shape[0], 3, 2), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten())
        self.head = nn.Linear(3, classes)

    def forward(self, x):
        return self.head(self.core(x))


KINDS = {
    "16 bits": ((bright(6, 6) * 65535).astype(np.uint16), "cnn", "auto"),
    "floats": (bright(1, 6, 6), "cnn", "standard"),
    "signed": ((bright(6, 6) * 3000 - 1000).astype(np.int16), "mlp", "range"),
    "five channels": ((bright(6, 6, 5) * 255).astype(np.uint8), "cnn", "auto"),
    "volume": (bright(2, 3, 4, 4), "data.test_types:Scanner", "auto"),
    "tokens": (RANDOM.integers(0, 10, (48, 5)) + 10 * Y[:, None], "data.test_types:Reader", "tokens"),
}


def of_nodes(kind):
    """Four nodes with inputs of a kind."""
    x, _, scale = KINDS[kind]
    return Federation.from_nodes(
        [(x[i::4], np.roll(Y, i)[:12], x[i::4], np.roll(Y, i)[:12]) for i in range(4)], scale=scale
    )


def trained(kind, *settings, out=None):
    made = of_nodes(kind)
    written = {
        "data": made.section,
        "model": {"name": KINDS[kind][1]},
        "topology": {"degree": 2},
        "training": {"rounds": 2, "steps": 1},
        "evaluation": {"every": 2},
        "runtime": {"threads": 1},
    }
    return run(Experiment.of(written, settings), out, federation=made)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_trains_on_every_kind_of_input(algorithm, kind):
    own = {"facade": ("algorithm.seeding=none", "algorithm.warmup=1"), "ifca": ("algorithm.warmup=1",)}
    result = trained(kind, f"algorithm.name={algorithm}", *own.get(algorithm, ()))
    assert all(leaf.isfinite().all() for leaf in result.models.values())
    fresh = result.learner.untrained(1)
    assert any(not torch.equal(leaf[0], fresh[name]) for name, leaf in result.models.items())


def test_a_survey_of_who_looks_alike_and_a_guard_take_tokens():
    result = trained("tokens", "training.rounds=40", "evaluation.every=40", "guard.rule=fair", "algorithm.heads=auto")
    assert "survey" in result.summary


@pytest.mark.parametrize(
    ("kind", "stored", "scale", "low", "high"),
    [
        ("16 bits", torch.float32, "bits", -1, 1),
        ("floats", torch.float32, "standard", -3, 3),
        ("signed", torch.float32, "range", -1, 1),
        ("five channels", torch.uint8, "auto", -1, 1),
        ("volume", torch.float32, "none", 0, 1),
    ],
)
def test_values_become_inputs_as_the_scale_says(kind, stored, scale, low, high):
    made = of_nodes(kind)
    x = made.training.samples.x
    assert (x.dtype, made.scale) == (stored, scale)
    before = x.clone()
    inputs = Inputs(made.shape, made.mean, made.std, made.scale).prepare(x, torch.float32)
    assert torch.equal(x, before)
    assert low - 1e-6 <= inputs.min() < inputs.max() <= high + 1e-6
    if scale == "standard":
        assert abs(inputs.mean()) < 1e-5
        assert inputs.std(correction=0) == pytest.approx(1)
    if scale == "range":
        assert (inputs.min(), inputs.max()) == (pytest.approx(-1), pytest.approx(1))
    if scale == "none":
        assert torch.equal(inputs, x)


def test_volumes_are_neither_turned_nor_drawn_and_deep_images_are_drawn(tmp_path):
    volumes = KINDS["volume"][0]
    with pytest.raises(
        ExperimentError, match=r"skew 'rotate' changes images, but 'given' gives samples of shape \[2, 3"
    ):
        Federation.from_arrays(volumes, Y, clusters="2:2", skew="rotate")
    with pytest.raises(DataError, match="only images of 1 or 3 channels can"):
        draw(of_nodes("volume"), tmp_path / "out.png")
    with pytest.raises(ExperimentError, match=r"model 'cnn' needs images but the data are of shape \[2, 3, 4, 4\]"):
        trained("volume", "model.name=cnn", "algorithm.name=el")
    draw(of_nodes("16 bits"), tmp_path / "out.png")
    with Image.open(tmp_path / "out.png") as picture:
        assert np.ptp(np.asarray(picture)) == 255


def test_rows_are_scaled_value_by_value_from_training_rows_alone():
    x = np.array([[0, 5], [2, 5], [4, 5], [6, 5]], np.float64)
    tests = np.array([[100, 7], [3, 5]])
    made = Federation.from_arrays(x, [0, 1, 0, 1], tests, [0, 1], clusters="1", scale="standard")
    assert made.mean == [3, 5]
    assert made.std == [pytest.approx(5**0.5), 1]  # a constant value is only moved
    assert Federation.from_arrays(x, [0, 1, 0, 1], tests, [0, 1], clusters="1").scale == "auto"


def test_bytes_are_scaled_by_255_only_where_nothing_else_is_asked_for():
    x = np.full((1, 1, 1, 1), 255, np.uint8)
    auto, none = Inputs((1, 1, 1), [0.5], [0.5]), Inputs((1, 1, 1), [0.0], [1.0], "none")
    assert auto.prepare(torch.from_numpy(x), torch.float32).item() == 1
    assert none.prepare(torch.from_numpy(x), torch.float32).item() == 255


@pytest.mark.parametrize(
    ("shape", "channels"),
    [((5, 8, 8), 5), ((8, 8, 5), 5), ((64, 4, 4), 64), ((7, 9, 2), 2), ((2, 7, 9), 2), ((3, 8, 8), 3), ((6, 6, 6), 6)],
)
def test_channels_are_found_first_or_last(shape, channels):
    made = Federation.from_arrays(np.zeros((8, *shape), np.uint8), np.arange(8) % 2, clusters="1", test_fraction=0.5)
    assert made.shape[0] == channels


def test_a_model_that_knows_too_few_tokens_is_told_how_many_there_are():
    x = RANDOM.integers(0, 30, (48, 5))
    x[0, 0] = 29
    made = Federation.from_arrays(x, Y, x, Y, clusters="3", scale="tokens")
    experiment = Experiment.of(
        {"data": made.section, "model": {"name": "data.test_types:Reader"}, "topology": {"degree": 2}}
    )
    with pytest.raises(ExperimentError, match=r"cannot take token 29, the largest in the data .* 30 rows"):
        run(experiment, federation=made)


@pytest.mark.parametrize(
    ("x", "settings", "said"),
    [
        (np.where(np.arange(48) == 5, np.nan, 1.0).reshape(48, 1, 1), {}, "row 5 holds NaN or infinity"),
        (np.where(np.arange(48) == 7, np.inf, 1.0).reshape(48, 1), {}, "row 7 holds NaN or infinity"),
        (np.full((48, 2), 1e300), {}, "row 0 holds NaN or infinity"),
        ([[1, 2], [3]] * 24, {}, "different shapes, or are no numbers"),
        (np.array([["a"]] * 48), {}, "inputs of type <U1"),
        (np.zeros((48, 2, 2, 2, 2, 2)), {}, "expected numbers: images"),
        (np.zeros((48, 3)), {"scale": "bits"}, "'bits' needs integers of 8 or 16 bits"),
        (np.zeros((48, 3)), {"scale": "tokens"}, "inputs are of type float64 .* whole numbers from 0 on"),
        (np.full((48, 3), -1), {"scale": "tokens"}, "whole numbers from 0 on"),
        (np.zeros((48, 3)), {"classes": ["ill", "ill"]}, "two classes are named 'ill'"),
    ],
)
def test_impossible_inputs_are_refused_in_a_sentence(x, settings, said):
    with pytest.raises(DataError, match=said):
        Federation.from_arrays(x, Y, clusters="2", **settings)


def test_data_of_one_class_and_images_of_two_types_are_refused():
    x = np.zeros((12, 4, 4), np.uint16)
    with pytest.raises(DataError, match="all samples are of class '0'; there is nothing to learn"):
        Federation.from_arrays(x, np.zeros(12, int), clusters="2")
    y = np.arange(12) % 2
    with pytest.raises(DataError, match="inputs of the types float64 and uint16"):
        Federation.from_nodes([(x, y, x, y), (x / 7, y, x, y)])
    with pytest.raises(DataError, match=r"inputs of shape \[1, 5, 5\]"):
        Federation.from_nodes([(x, y, x, y), (np.zeros((12, 5, 5), np.uint16), y, x, y)])


def test_an_npz_file_names_its_sites_and_may_say_their_clusters(tmp_path):
    x, names = KINDS["16 bits"][0], np.array(["oslo", "rome", "bonn"])
    more = {"nodes_train": np.arange(48) % 3, "sites": names, "cluster_of_site": [0, 1, 0]}
    np.savez(tmp_path / "a.npz", x_train=x, y_train=Y, **more)
    made = load(data(tmp_path, "npz", path="a.npz", clusters="unknown"), seed=1)
    assert (made.sites, made.cluster, made.scale) == (names.tolist(), None, "bits")
    known = load(data(tmp_path, "npz", path="a.npz", clusters="2:1", partition="natural"), seed=1)
    assert known.cluster.tolist() == [0, 1, 0]
    with pytest.raises(DataError, match=r"in clusters of 2:1 nodes, but data.clusters = '1:2'"):
        load(data(tmp_path, "npz", path="a.npz", clusters="1:2", partition="natural"), seed=1)
    one = load(data(tmp_path, "npz", path="a.npz", clusters="3", partition="stratified"), seed=1)
    assert (one.sites, one.cluster.tolist()) == (None, [0, 0, 0])
    np.savez(tmp_path / "b.npz", x_train=x, y_train=Y, **(more | {"sites": names[:2]}))
    with pytest.raises(DataError, match="names has 2 names but there are 3 nodes"):
        read(data(tmp_path, "npz", path="b.npz"))


def test_nodes_that_bring_their_data_are_recorded_as_natural():
    made = of_nodes("floats")
    assert made.section["partition"] == "natural"
    assert made.cluster is None
    x = KINDS["floats"][0]
    named = Federation.from_nodes([(x, Y, x, Y)] * 2, names=["a", "b"])
    assert named.sites == ["a", "b"]
    with pytest.raises(DataError, match="'a' more than once"):
        Federation.from_nodes([(x, Y, x, Y)] * 2, names=["a", "a"])


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"partition": "stratified"}, "clusters = 'unknown' leaves nodes as the source has them, so partition ="),
        ({"skew": "rotate"}, "so skew = 'rotate' is not possible"),
    ],
)
def test_unknown_clusters_are_not_divided_or_changed(fields, said):
    with pytest.raises(ExperimentError, match=said):
        Experiment.of({"data": {"source": "digits", "clusters": "unknown"} | fields})


def test_unknown_clusters_need_a_source_that_has_nodes():
    with pytest.raises(ExperimentError, match="'digits' does not say who holds what"):
        run(Experiment.of({"data": {"source": "digits", "clusters": "unknown"}}))


@pytest.mark.parametrize("kind", ["16 bits", "tokens"])
def test_an_exported_model_takes_values_as_they_come(kind, tmp_path, monkeypatch):
    result = trained(kind, "algorithm.name=el", out=tmp_path / "run")
    export(tmp_path / "run", tmp_path / "model", node=0)
    monkeypatch.syspath_prepend(tmp_path / "model")
    monkeypatch.delitem(sys.modules, "model", raising=False)
    x = of_nodes(kind).training.samples.x[:6]
    module = importlib.import_module("model")
    monkeypatch.delitem(sys.modules, "model")
    with torch.no_grad():
        expected = result.model(0)(result.learner.inputs.prepare(x, torch.float32))
        assert torch.allclose(module.load()(x), expected, 1e-4, 1e-5)
    card = (tmp_path / "model" / "README.md").read_text()
    assert input_words(federation_facts(of_nodes(kind))) in card
    assert result.experiment.data.partition == "natural"


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("16 bits", "images of 1 x 6 x 6 numbers, scaled by the range of their integer type (mean [32767.5]"),
        (
            "signed",
            "images of 1 x 6 x 6 numbers, scaled by the least and largest training value of every channel (mean",
        ),
        ("five channels", "uint8 images of 5 x 6 x 6 (channels, height, width), values 0 to 255"),
        ("volume", "volumes of 2 x 3 x 4 x 4 numbers, as they are"),
        ("tokens", "rows of 5 tokens, whole numbers from 0 on"),
    ],
)
def test_a_card_says_how_values_become_inputs(kind, said):
    assert input_words(federation_facts(of_nodes(kind))).startswith(said)
