import numpy as np
import pytest
import torch
from torch.func import functional_call
from torch.nn import functional

from facade.core import tree
from learners import CLASSES, NODES, holdings, learner, mlp, normalised, samples


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
