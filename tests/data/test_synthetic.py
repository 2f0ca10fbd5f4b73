import numpy as np
import pytest
import torch

from facade import Experiment, run
from facade.data.errors import DataError
from facade.data.load import load
from facade.data.section import DataSection
from facade.data.synthetic import convexity, gaussian_rows, optimum

L2 = 0.05


def federation(clusters="3:2", **fields):
    return load(DataSection(source="synthetic", clusters=clusters, skew="none", partition="natural", **fields), seed=1)


def cluster_rows(made, cluster):
    rows = np.concatenate([made.training.rows[i] for i in np.nonzero(made.cluster == cluster)[0]])
    samples = made.training.samples[torch.from_numpy(rows)]
    return samples.x.double().numpy(), samples.y.numpy()


def objective(theta, x, y):
    logits = x @ theta[:, :-1].T + theta[:, -1]
    return torch.nn.functional.cross_entropy(logits, y) + L2 / 2 * (theta**2).sum()


def test_every_node_has_rows_and_tests_of_its_own():
    made = federation()
    assert [len(rows) for rows in made.training.rows] == [120] * 5
    assert [len(test) for test in made.tests] == [80] * 5
    assert made.cluster.tolist() == [0, 0, 0, 1, 1]
    assert made.training.samples.x.dtype == torch.float32


def test_a_nodes_rows_do_not_depend_on_how_many_nodes_there_are():
    few, many = (gaussian_rows(np.array(c), 20, "train")[0] for c in ([0, 1], [0, 1, 0, 1, 1]))
    assert torch.equal(few.x, many.x[:40])


def test_the_optimum_has_no_gradient_and_torch_agrees():
    x, y = cluster_rows(federation(), 0)
    best = optimum(x, y, 4, L2)
    assert best.gradient_norm <= 1e-10
    theta = torch.tensor(np.concatenate([best.weight, best.bias[:, None]], 1), requires_grad=True)
    loss = objective(theta, torch.from_numpy(x), torch.from_numpy(y))
    (gradient,) = torch.autograd.grad(loss, theta)
    assert gradient.norm() < 1e-9
    assert abs(loss.item() - best.loss) < 1e-12


def test_clusters_have_different_optima():
    made = federation()
    best = [optimum(*cluster_rows(made, c), 4, L2) for c in (0, 1)]
    assert np.linalg.norm(best[0].weight - best[1].weight) > 0.5


def test_the_curvature_lies_between_lambda_and_l_everywhere():
    x, y = cluster_rows(federation(), 0)
    smoothness, strong = convexity(x, L2)
    assert strong == L2
    for scale in (0.0, 0.1, 1.0):
        theta = scale * torch.from_numpy(np.random.default_rng(1).normal(size=(4, 11)))
        hessian = torch.autograd.functional.hessian(
            lambda t: objective(t, torch.from_numpy(x), torch.from_numpy(y)), theta
        ).reshape(44, 44)
        values = torch.linalg.eigvalsh(hessian)
        assert values[0] >= strong - 1e-12
        assert values[-1] <= smoothness + 1e-12


def test_gradient_descent_with_1_over_l_contracts_towards_the_optimum():
    x, y = cluster_rows(federation(), 1)
    smoothness, strong = convexity(x, L2)
    best = optimum(x, y, 4, L2)
    goal = torch.tensor(np.concatenate([best.weight, best.bias[:, None]], 1))
    theta = torch.zeros(4, 11, dtype=torch.float64)
    distance = (theta - goal).norm()
    for _ in range(20):
        theta.requires_grad_()
        (gradient,) = torch.autograd.grad(objective(theta, torch.from_numpy(x), torch.from_numpy(y)), theta)
        theta = theta.detach() - gradient / smoothness
        closer = (theta - goal).norm()
        assert closer <= (1 - strong / smoothness) ** 0.5 * distance
        distance = closer


def test_an_optimum_out_of_reach_is_refused():
    with pytest.raises(DataError, match="the optimum was not reached"):
        optimum(np.eye(3), np.arange(3), 3, 1e-3, tolerance=0)


def test_facade_learns_it_with_softmax_regression():
    experiment = Experiment.of(
        {
            "data": {"source": "synthetic", "clusters": "4:2", "skew": "none", "partition": "natural"},
            "model": {"name": "softmax"},
            "algorithm": {"name": "facade", "warmup": 0, "seeding": "none"},
            "training": {"rounds": 30, "lr": 0.1},
            "evaluation": {"every": 30},
        }
    )
    assert run(experiment).summary["all"] > 0.85


def test_training_with_weight_decay_approaches_the_optimum():
    # Full batches, one step and a complete graph: gradient descent on the rows of all nodes.
    made = federation("4")
    x, y = cluster_rows(made, 0)
    smoothness, strong = convexity(x, 0.5)  # strong enough to arrive within the rounds
    experiment = Experiment.of(
        {
            "data": {"source": "synthetic", "clusters": "4", "skew": "none", "partition": "natural"},
            "model": {"name": "softmax"},
            "algorithm": {"name": "el"},
            "topology": {"name": "complete"},
            "training": {"rounds": 300, "steps": 1, "batch": 120, "lr": 1 / smoothness, "weight_decay": strong},
            "evaluation": {"every": 300},
            "runtime": {"dtype": "float64"},
        }
    )
    model = run(experiment).models
    best = optimum(x, y, 4, 0.5)
    assert np.linalg.norm(model["head.weight"][0].numpy() - best.weight) < 1e-4 * np.linalg.norm(best.weight)
    assert np.abs(model["head.bias"][0].numpy() - best.bias).max() < 1e-4
