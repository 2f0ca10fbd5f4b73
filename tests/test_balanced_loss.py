import numpy as np
import pytest
import torch
from torch.func import functional_call
from torch.nn import functional

from facade.core import tree
from facade.core.engine import evaluate
from facade.core.turn import Shard
from learners import CLASSES, NODES, holdings, learner, mlp, normalised, random_images, samples


@pytest.mark.parametrize("executor", ["stacked", "looped"])
def test_a_balanced_loss_is_that_of_outputs_with_the_nodes_log_shares_added(executor):
    balanced = learner(mlp, executor=executor, loss="balanced")
    models_ = balanced.init(1, 0, np.arange(NODES))
    core, head = balanced.split(models_)
    drawn = samples("choose")
    scored = balanced.score(core, tree.map(lambda leaf: leaf.unsqueeze(1), head), drawn)[:, 0]
    compared = balanced.compare(models_, torch.arange(NODES), torch.arange(NODES), drawn)
    held = holdings()
    for node in range(NODES):
        counts = torch.bincount(held.samples.y[torch.from_numpy(held.rows[node])], minlength=CLASSES) + 0.5
        own = drawn.of(slice(node, node + 1))
        logits = functional_call(mlp().double(), tree.rows(models_, node), (normalised(own.x[0]),))
        expected = functional.cross_entropy(logits + (counts / counts.max()).log(), own.y[0])
        assert scored[node].item() == pytest.approx(expected.item())
        assert compared[node].item() == pytest.approx(expected.item())


@pytest.mark.parametrize("executor", ["stacked", "looped"])
@pytest.mark.parametrize("init", ["common", "per-node"])
def test_outputs_of_one_pass_are_judged_under_every_prior_of_every_node(executor, init):
    balanced = learner(mlp, executor=executor, init=init, loss="balanced")
    models_ = balanced.init(1, 0, np.arange(NODES))
    draw = torch.Generator().manual_seed(5)
    tests = [random_images(count, draw) for count in (1100, 40)]
    test_of = np.array([1, 0, 1, 0, 0])
    priors = torch.randn(NODES, 3, CLASSES, dtype=torch.float64, generator=draw)
    shard = Shard(np.arange(NODES), NODES, 1, balanced, holdings())
    examined = evaluate(shard, [models_], tests, test_of, priors)
    for node in range(NODES):
        test = tests[test_of[node]]
        logits = functional_call(mlp().double(), tree.rows(models_, node), (normalised(test.x),)).detach()
        matrices = torch.zeros(3, CLASSES, CLASSES, dtype=torch.int64)
        for matrix, prior in zip(matrices, priors[node], strict=True):
            for truth, output in zip(test.y, logits, strict=True):
                matrix[truth, (output + prior).argmax()] += 1
        assert torch.equal(examined.confusion[node], matrices[0])
        assert torch.equal(examined.others[node], matrices[1:])
        loss = functional.cross_entropy(logits + priors[node, 0], test.y)
        assert examined.loss[node].item() == pytest.approx(loss.item(), rel=1e-12)


def test_more_nodes_than_are_judged_at_once_share_a_model():
    balanced = learner(mlp, loss="balanced")
    model = balanced.init(1, 0, np.arange(1))
    held = holdings()
    priors = torch.randn(70, 2, CLASSES, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    together = balanced.examine(model, [held.samples], np.zeros(1, np.int64), [priors])
    for node in range(70):
        alone = balanced.examine(model, [held.samples], np.zeros(1, np.int64), [priors[node : node + 1]])
        assert all(torch.equal(one[node], other[0]) for one, other in zip(together, alone, strict=True))
