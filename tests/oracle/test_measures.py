"""The measures beside confusion matrices equal slow loops that follow their definitions."""

import numpy as np
import pytest
import torch

from facade.learning.measures import BINS, as_row, measured
from oracle import measure_loops as loops


def outputs(models, samples, classes, seed, tied=False):
    """Random outputs that know something of random labels; tied: many samples, of any class, have the same."""
    draw = np.random.default_rng(seed)
    labels = draw.permutation(np.arange(samples) % classes)
    logits = draw.normal(size=(models, samples, classes)) * 2
    logits[:, np.arange(samples), labels] += 1.5
    if tied:
        logits = logits[:, draw.integers(0, samples // 3, samples)]
    return torch.from_numpy(logits.astype(np.float32)), torch.from_numpy(labels)


@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("tied", [False, True])
def test_measures_equal_loops_from_their_definitions(classes, tied):
    logits, labels = outputs(3, 40, classes, seed=classes, tied=tied)
    found = measured(logits, labels).tolist()
    for rows, (auc, auc_variance, loss_variance, calibration_error) in zip(logits.tolist(), found, strict=True):
        truth = labels.tolist()
        assert auc == pytest.approx(loops.auc(rows, truth), rel=1e-12)
        assert auc_variance == pytest.approx(loops.auc_variance(rows, truth), rel=1e-9)
        losses = loops.log_losses(rows, truth)
        assert loss_variance == pytest.approx(loops.variance(losses) / len(losses), rel=1e-9)
        assert calibration_error == pytest.approx(loops.calibration_error(rows, truth, BINS), abs=1e-12)


@pytest.mark.parametrize("tied", [False, True])
def test_the_variance_of_two_classes_is_delongs(tied):
    logits, labels = outputs(4, 31, 2, seed=7, tied=tied)
    for rows, found in zip(logits.tolist(), measured(logits, labels), strict=True):
        assert found[1].item() == pytest.approx(loops.binary_auc_variance(rows, labels.tolist()), rel=1e-9)


def test_delongs_variance_is_about_that_over_test_sets():
    logits, labels = outputs(400, 120, 3, seed=1)
    auc, variance = measured(logits, labels)[:, :2].T
    assert variance.mean().item() == pytest.approx(auc.var().item(), rel=0.25)


def test_a_model_has_the_same_bits_whatever_is_measured_beside_it():
    logits, labels = outputs(40, 2500, 4, seed=3)
    together = measured(logits, labels)
    for number in (0, 25, 26, 39):
        assert torch.equal(measured(logits[number : number + 1], labels)[0], together[number])


def test_nodes_that_share_a_model_are_measured_under_their_own_priors():
    logits, labels = outputs(2, 30, 3, seed=4)
    priors = [torch.randn(count, 2, 3, generator=torch.Generator().manual_seed(count)) for count in (2, 40)]
    priors[1][5:20, 0] = priors[1][0, 0]
    found = measured(logits, labels, priors)
    pairs = zip(logits, priors, strict=True)
    expected = [measured((out + one[0])[None], labels) for out, prior in pairs for one in prior]
    assert torch.equal(found, torch.cat(expected))


def test_sure_models_are_ranked_by_how_sure_they_are():
    labels = torch.tensor([0, 0, 1, 1])
    sure = torch.tensor([[[50.0, 0.0], [0.0, 60.0], [0.0, 70.0], [0.0, 80.0]]])
    assert measured(sure, labels)[0, 0] == 1.0
    assert measured(1000 * sure, labels)[0, 0] == 1.0
    assert measured(sure.flip(1), labels)[0, 0] == 0.0


def test_what_a_test_set_cannot_tell_is_null():
    logits = torch.randn(1, 5, 3, generator=torch.Generator().manual_seed(0))
    missing = as_row(measured(logits, torch.tensor([0, 0, 1, 1, 1]))[0], 0.5)
    assert missing["auc"] is None
    assert missing["log_loss"][0] == 0.5
    assert missing["log_loss"][1] > 0
    single = as_row(measured(logits, torch.tensor([0, 0, 1, 1, 2]))[0], 0.5)
    assert 0 <= single["auc"][0] <= 1
    assert single["auc"][1] is None
    one = as_row(measured(logits[:, :1], torch.tensor([2]))[0], 0.5)
    assert one == {"auc": None, "log_loss": [0.5, None], "calibration_error": one["calibration_error"]}
