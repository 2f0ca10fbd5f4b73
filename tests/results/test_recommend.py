"""A new site's data as a run's models see them."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits
from torch.nn import functional

from facade import Experiment, run
from facade.data.section import DataSection
from facade.export.model_card import OWN_SHARES
from facade.export.recommend import OfferedModel, Recommendation, lead, recommend, site_data
from facade.learning.running_statistics import estimate
from results.conftest import tiny


def site(path, order, contrast=1.0):
    """300 digits, their classes numbered in an order of the site's own."""
    raw = load_digits()
    mean = raw.images.mean((1, 2), keepdims=True)
    images = mean + (raw.images - mean) * contrast
    x, y = (images * 15).astype(np.uint8)[:300], np.argsort(order)[raw.target[:300]]
    np.savez(path, x_train=x, y_train=y, x_test=x[:20], y_test=y[:20], classes=np.array([str(d) for d in order]))


def test_a_sites_classes_are_matched_by_name_and_all_its_samples_count(tmp_path):
    run(tiny("training.rounds=20", "training.steps=5", "training.lr=0.1"), tmp_path / "run")
    fits_by_order = []
    for order in (np.arange(10), np.arange(10)[::-1]):
        site(tmp_path / "site.npz", order)
        data = DataSection(source="npz", root=str(tmp_path), path="site.npz", clusters="1")
        fits_by_order.append(recommend(tmp_path / "run", data).models)
    assert [len(fits[0].losses) for fits in fits_by_order] == [300, 300]
    for one, other in zip(*fits_by_order, strict=True):
        assert (one.head, one.accuracy) == (other.head, other.accuracy)
        assert one.loss == pytest.approx(other.loss)


def test_running_statistics_of_the_site_take_the_place_of_those_that_stayed_at_their_nodes(tmp_path):
    sizes = ("data.clusters=2:2", "topology.degree=2", "training.rounds=20", "training.steps=5", "training.lr=0.1")
    settings = ("algorithm.name=el", "model.name=contract.own:Normed", "data.skew=contrast", "data.severity=4")
    result = run(tiny(*sizes, *settings), tmp_path / "run")
    site(tmp_path / "site.npz", np.arange(10), contrast=0.2)
    data = DataSection(source="npz", root=str(tmp_path), path="site.npz", clusters="1")
    recommendation = recommend(tmp_path / "run", data)
    assert recommendation.estimated == ["body.1.running_mean", "body.1.running_var"]
    assert recommendation.untrained == []
    (offered,) = recommendation.models  # all nodes share the rest
    assert offered.nodes == [0, 1, 2, 3]
    samples = site_data(data, [str(digit) for digit in range(10)], (1, 8, 8))
    module, x = result.model(0), result.learner.inputs.prepare(samples.x, torch.float32)
    as_it_was = (module(x).argmax(1) == samples.y).double().mean()
    estimate(module, [x])
    assert offered.accuracy == pytest.approx(float((module(x).argmax(1) == samples.y).double().mean()), abs=0.01)
    assert offered.accuracy > as_it_was + 0.05


@pytest.mark.parametrize("count", [20, 60])
def test_where_a_site_has_no_test_samples_all_it_has_count(tmp_path, count):
    run(tiny(), tmp_path / "run")
    raw = load_digits()
    x, y = (raw.images * 15).astype(np.uint8)[:count], raw.target[:count]
    np.savez(tmp_path / "site.npz", x_train=x, y_train=y, classes=np.array([str(d) for d in range(10)]))
    data = DataSection(source="npz", root=str(tmp_path), path="site.npz", clusters="1")
    assert len(recommend(tmp_path / "run", data).models[0].losses) == count


def test_models_of_the_balanced_loss_are_judged_with_the_sites_own_label_shares(tmp_path, command):
    settings = ("training.loss=balanced", "data.partition=dirichlet", "algorithm.name=el")
    result = run(tiny(*settings), tmp_path / "run")
    raw = load_digits()
    few = raw.target < 4
    x, y = (raw.images * 15).astype(np.uint8)[few][:120], raw.target[few][:120]
    np.savez(tmp_path / "site.npz", x_train=x, y_train=y, x_test=x, y_test=y, classes=np.arange(10).astype(str))
    counts = np.bincount(y, minlength=10) + 0.5
    fit = recommend(tmp_path / "run", DataSection(source="npz", root=str(tmp_path), path="site.npz", clusters="1"))
    assert fit.log_shares == pytest.approx(np.log(counts / counts.max()), abs=1e-6)
    ready = result.learner.inputs.prepare(torch.from_numpy(x).unsqueeze(1), torch.float32)
    with torch.no_grad():
        outputs = result.model(0)(ready) + torch.from_numpy(fit.log_shares)
    assert fit.models[0].loss == pytest.approx(functional.cross_entropy(outputs, torch.from_numpy(y)).item(), rel=1e-5)
    assert fit.models[0].accuracy == float((outputs.argmax(1).numpy() == y).mean())
    site_arguments = ("--data", "npz", "--root", tmp_path, "--path", "site.npz")
    ended = command("recommend", tmp_path / "run", *site_arguments, "--json")
    assert f"are with the site's own label shares added. {OWN_SHARES}" in " ".join(ended.err.split())
    assert json.loads(ended.out)["log_shares"] == fit.log_shares.tolist()


def images(path, side):
    draw = np.random.default_rng(side)
    for split, count in (("train", 6), ("test", 3)):
        for label in ("cat", "dog"):
            (path / split / label).mkdir(parents=True)
            for i in range(count):
                pixels = draw.integers(0, 256, (side, side, 3), np.uint8)
                Image.fromarray(pixels).save(path / split / label / f"{i}.png")


def test_a_sites_images_are_scaled_as_the_runs_were(tmp_path):
    images(tmp_path / "theirs", 12)
    images(tmp_path / "site", 20)
    folder = {"source": "folder", "root": str(tmp_path)}
    described = tiny().model_dump() | {"data": folder | {"path": "theirs", "size": 8, "clusters": "3:1"}}
    run(Experiment.of(described, ["data.skew=none", "training.batch=2"]), tmp_path / "run")
    recommendation = recommend(tmp_path / "run", DataSection(**folder, path="site", clusters="1"))
    assert len(recommendation.models[0].losses) == 12


@pytest.mark.parametrize(("count", "few"), [(1, "1 sample is too few"), (4, "4 samples are too few")])
def test_a_handful_of_samples_make_nothing_clear(command, monkeypatch, count, few):
    fits = [OfferedModel(head, [head], np.full(count, head + 1.0), 1.0) for head in (0, 1)]
    monkeypatch.setattr("facade.export.recommend.recommend", lambda run, data: Recommendation(fits, [], [], []))
    verdict = command("recommend", "run", "--data", "npz").out.splitlines()[-1]
    assert verdict.startswith(f"Head 0 fits best, but {few} to tell from chance (give 5 or more): by 1.0000")
    assert not lead(*fits).clear


def test_for_programs_the_losses_are_one_line_of_json(command, monkeypatch):
    fits = [OfferedModel(head, [head], np.full(5, head + 1.0), 0.5) for head in (0, 1)]
    monkeypatch.setattr("facade.export.recommend.recommend", lambda run, data: Recommendation(fits, [2], [], []))
    ended = command("recommend", "run", "--data", "npz", "--json")
    assert "Head 0 fits best" in ended.err
    facts = json.loads(ended.out)
    assert facts["fits"][1] == {"name": "head 1", "head": 1, "nodes": [1], "loss": 2.0, "accuracy": 0.5}
    assert facts["unused"] == [2]


def test_the_lead_of_a_model_has_a_student_interval():
    best, second = (OfferedModel(0, [0], np.array(losses), 1.0) for losses in ([0.0] * 5, [1.0, 2.0, 3.0, 4.0, 5.0]))
    by, reach, samples = lead(best, second)
    assert (by, samples) == (3.0, 5)
    assert reach == pytest.approx(2.776 * np.sqrt(2.5) / np.sqrt(5), rel=1e-3)
    assert lead(best, second).clear
    assert not lead(second, best).clear
