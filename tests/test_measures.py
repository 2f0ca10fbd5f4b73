"""Measures beside accuracy: their values and intervals per node and cluster, and what older runs say of them."""

import math

import numpy as np
import pytest

from experiments import digits
from facade import run
from facade.analysis import measures, metrics
from facade.analysis.measures import MEASURES
from facade.runs.history import load
from facade.runs.run_directory import RunDirectory
from handmade import write_run

CONFUSION = np.array([[[18, 2], [5, 5]], [[10, 10], [0, 0]], [[20, 0], [0, 10]]])
BESIDE = np.array([[0.8, 0.01, 0.5, 0.04, 0.1], [np.nan, np.nan, 0.7, 0.01, 0.2], [1.0, 0.0, 0.1, np.nan, 0.0]])
NAMES, TEST_OF, CLUSTER = ["basel", "bern", "chur"], np.arange(3), np.array([0, 1, 0])


def test_sites_and_clusters_have_values_and_intervals():
    told = measures.facts(CONFUSION, BESIDE, NAMES, TEST_OF, CLUSTER)
    assert list(told) == list(MEASURES)
    auc = told["auc"]
    assert list(auc["sites"]) == NAMES
    assert auc["sites"]["bern"] == {"value": None, "low": None, "high": None}
    assert auc["sites"]["chur"] == {"value": 1.0, "low": None, "high": None}
    basel = auc["sites"]["basel"]
    logit, reach = math.log(0.8 / 0.2), 1.96 * 0.1 / (0.8 * 0.2)
    assert (basel["low"], basel["high"]) == pytest.approx(
        (1 / (1 + math.exp(reach - logit)), 1 / (1 + math.exp(-reach - logit))), rel=1e-4
    )
    assert auc["clusters"][0]["value"] == pytest.approx(0.9)
    assert auc["clusters"][1]["value"] is None
    assert told["log-loss"]["sites"]["basel"]["low"] == pytest.approx(0.5 - 1.96 * 0.2, abs=1e-4)
    assert told["log-loss"]["sites"]["chur"] == {"value": 0.1, "low": None, "high": None}
    assert told["calibration-error"]["sites"]["bern"] == {"value": 0.2, "low": None, "high": None}
    assert told["balanced-accuracy"]["sites"]["basel"]["value"] == pytest.approx((0.9 + 0.5) / 2)
    assert "clusters" not in measures.facts(CONFUSION, BESIDE, NAMES, TEST_OF, None)["auc"]


def test_nodes_on_one_test_set_rise_and_fall_together():
    value, variance = np.array([0.5, 0.7]), np.array([0.04, 0.04])
    assert measures.mean_over(value, variance, np.array([3, 3])) == pytest.approx((0.6, 0.04))
    assert measures.mean_over(value, variance, np.array([3, 4])) == pytest.approx((0.6, 0.02))


def test_values_that_are_moved_by_noise_spread_as_their_intervals_say():
    noise = np.random.default_rng(0).standard_normal((4000, 1))
    for name, value in (("auc", 0.9), ("log-loss", 0.9)):
        measure, variance = MEASURES[name], 0.002
        drawn = measures.moved(measure, np.array([value]), np.array([variance]), noise)
        found = np.quantile(drawn, [0.025, 0.975])
        assert found == pytest.approx(measures.interval(measure, value, variance), abs=0.01)
    ends = measures.moved(MEASURES["auc"], np.array([0.0, 1.0]), np.array([0.0, np.nan]), noise)
    assert (ends[:, 0] == 0).all()
    assert np.isnan(ends[:, 1]).all()


def test_a_run_leaves_every_measure_of_every_node(tmp_path):
    result = run(digits(clusters="3:1", degree=2, rounds=2, steps=1, every=1), tmp_path / "run")
    told = RunDirectory(tmp_path / "run").read("result.json")["measures"]
    assert told == result.summary["measures"]
    assert list(told["auc"]["sites"]) == [f"node {node}" for node in range(result.experiment.n)]
    assert len(told["log-loss"]["clusters"]) == len(result.summary["clusters"])
    shares = [fact["value"] for fact in told["accuracy"]["clusters"]]
    assert shares == pytest.approx(result.summary["clusters"])
    history = load(tmp_path / "run")
    finals = [row for row in result.rows if row["kind"] == "final"]
    assert history.final.beside[:, 0].tolist() == [row["measures"]["auc"][0] for row in finals]
    for evaluation in history.evaluations:
        assert np.isfinite(evaluation.beside[:, [0, 2, 4]]).all()


def test_an_older_run_has_what_follows_from_its_confusion_matrices(tmp_path):
    old = load(write_run(tmp_path / "old", [(10, None)] * 2, {}, [9, 8, 7, 6]))
    assert old.final.beside is None
    balanced = measures.values(MEASURES["balanced-accuracy"], old.final.confusion, old.final.beside)
    assert balanced.tolist() == metrics.accuracy(old.final.confusion).tolist()
    assert np.isnan(measures.values(MEASURES["auc"], old.final.confusion, old.final.beside)).all()
    told = measures.facts(old.final.confusion, old.final.beside, list("abcd"), old.test_of, old.cluster)
    assert told["log-loss"]["clusters"][1] == {"value": None, "low": None, "high": None}
