import pytest
import torch

from facade import ExperimentError
from facade.data.matching import matched
from facade.data.samples import Dataset, Labelled


def site(*classes, shape=(1, 2, 2)):
    """One sample of each class, for training and for tests."""
    samples = Labelled(torch.zeros(len(classes), *shape, dtype=torch.uint8), torch.arange(len(classes)))
    return Dataset(samples, samples, list(classes))


def test_classes_are_matched_by_name():
    dataset = matched(site("dog", "cat"), ["ant", "cat", "dog"], [1, 2, 2], "the run")
    assert (dataset.train.y.tolist(), dataset.test.y.tolist()) == ([2, 1], [2, 1])
    assert dataset.classes == ["ant", "cat", "dog"]


def test_a_class_that_the_others_do_not_have_is_refused():
    with pytest.raises(ExperimentError, match=r"the run knows no class 'eel'; its classes are ant, cat: name the site"):
        matched(site("cat", "eel"), ["ant", "cat"], [1, 2, 2], "the run")


def test_inputs_of_another_shape_are_refused():
    with pytest.raises(
        ExperimentError, match=r"the federation takes inputs of shape \[1, 2, 2\] but the .* \[3, 2, 2\]"
    ):
        matched(site("cat", shape=(3, 2, 2)), ["cat"], [1, 2, 2], "the federation")
