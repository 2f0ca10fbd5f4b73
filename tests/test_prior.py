"""Predictions after the balanced loss: for equally frequent classes, or with a node's own label shares."""

import dataclasses

import numpy as np
import pytest

from experiments import digits
from facade import Experiment, Federation, run
from facade.data.load import load
from facade.errors import ExperimentError
from facade.experiment.setup import planned
from facade.testing.driven import driven, prepared, result_of

UNEQUAL = ("training.loss=balanced", "data.partition=dirichlet", "data.alpha=0.5")


def tiny(*settings):
    return digits(*settings, clusters="4:2", degree=2, rounds=4, steps=2, every=2)


def evaluated(result):
    return [row for row in result.rows if row["kind"] != "round"]


@pytest.mark.parametrize("prior", ["flat", "own"])
def test_a_prior_without_the_balanced_loss_is_refused(prior):
    with pytest.raises(ExperimentError, match=f"evaluation.prior = '{prior}' needs training.loss = 'balanced'; with"):
        tiny(f"evaluation.prior={prior}")


def test_a_prior_that_nobody_chose_leaves_the_hash_of_an_experiment_as_it_was():
    assert tiny().hash == tiny("evaluation.prior=auto").hash
    assert tiny(*UNEQUAL).hash != tiny(*UNEQUAL, "evaluation.prior=own").hash


def test_with_the_plain_loss_rows_and_summary_say_nothing_of_priors():
    result = result_of(tiny("data.partition=dirichlet"))
    keys = {key for row in result.rows for key in row} | result.summary.keys()
    assert not any("flat" in key or "own" in key or "prior" in key for key in keys)


def natural(own_tests):
    """Three nodes that bring their samples, and tests of their own or one for all."""
    random = np.random.default_rng(1)

    def samples(count):
        return random.normal(size=(count, 4)).astype(np.float32), np.arange(count) % 3

    if own_tests:
        return Federation.from_nodes([(*samples(12), *samples(6)) for _ in range(3)])
    return Federation.from_nodes([samples(12) for _ in range(3)], test=samples(6))


FEDERATIONS = {
    "clusters that look different": (lambda: load(tiny().data, 1), "flat"),
    "clusters with classes of their own": (
        lambda: load(tiny("data.skew=labels", "data.groups=[[0,1,2],[3,4]]").data, 1),
        "own",
    ),
    "nodes with tests of their own": (lambda: natural(own_tests=True), "own"),
    "nodes with one test for all": (lambda: natural(own_tests=False), "flat"),
}
"""Federations, and the prior that "auto" becomes in them."""


@pytest.mark.parametrize("case", FEDERATIONS)
def test_own_shares_count_where_nodes_are_tested_on_labels_as_they_hold_them(case):
    load_data, prior = FEDERATIONS[case]
    federation, (_, plan) = load_data(), planned(tiny(*UNEQUAL))
    assert plan.prior_for(federation) == prior
    for written in ("flat", "own"):
        assert dataclasses.replace(plan, prior=written).prior_for(federation) == written


@pytest.mark.parametrize("head", ["chosen", "oracle"])
@pytest.mark.parametrize("validation", ["", "validation_"])
def test_the_two_priors_change_places_and_nothing_else(head, validation):
    """With the head best on the test data, another may be the best under another prior; there is one head then."""
    heads = ("algorithm.heads=1",) if head == "oracle" else ()
    experiment = tiny(*UNEQUAL, f"evaluation.head={head}", *heads, "data.validation=0.2")
    flat, own = (result_of(experiment.with_(f"evaluation.prior={prior}")) for prior in ("flat", "own"))
    assert flat.summary["model_sha256"] == own.summary["model_sha256"]
    for one, other in zip(evaluated(flat), evaluated(own), strict=True):
        assert one[f"{validation}confusion"] == other[f"{validation}flat_confusion"]
        assert one[f"{validation}own_confusion"] == other[f"{validation}confusion"]
        assert one[f"{validation}loss"] != other[f"{validation}loss"]
    assert [row["confusion"] for row in evaluated(flat)] != [row["confusion"] for row in evaluated(own)]


def test_the_summary_says_which_prior_counts_and_what_the_other_gives():
    flat, own = (result_of(tiny(*UNEQUAL, f"evaluation.prior={prior}")).summary for prior in ("auto", "own"))
    assert (flat["prior"], own["prior"]) == ("flat", "own")
    assert (flat["own_clusters"], flat["own_all"]) == (own["clusters"], own["all"])
    assert (own["flat_clusters"], own["flat_all"]) == (flat["clusters"], flat["all"])


def test_nodes_without_known_clusters_have_an_accuracy_under_the_other_prior():
    federation = natural(own_tests=True)
    settings = {"rounds": 2, "steps": 1, "loss": "balanced"}
    model = {"model": {"name": "softmax"}, "algorithm": {"name": "el"}, "topology": {"degree": 2}}
    experiment = Experiment.of({"data": federation.section, "training": settings, **model})
    summary = run(experiment, federation=federation).summary
    assert summary["prior"] == "own"
    assert "flat_all" in summary
    assert "flat_clusters" not in summary


def test_equal_models_pass_a_test_set_once_whatever_their_nodes_label_shares(monkeypatch):
    setup = prepared(tiny(*UNEQUAL, "algorithm.name=el", "runtime.executor=looped"))
    passes = []
    logits = setup.learner.executor.logits
    monkeypatch.setattr(setup.learner.executor, "logits", lambda models, x: passes.append(len(x)) or logits(models, x))
    rows = driven(setup).rows()
    tests = [len(test) for test in setup.federation.tests]
    evaluations = [tests[0]] * 4 + [tests[1]] * 2
    assert sorted(passes) == sorted([*evaluations, *evaluations, *tests]), "after the final exchange one model is left"
    finals = [row for row in rows if row["kind"] == "final"]
    assert len({str(row["confusion"]) for row in finals}) == 2
    assert len({str(row["own_confusion"]) for row in finals}) == 6
