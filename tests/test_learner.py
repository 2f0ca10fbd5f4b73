from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from facade.algorithms.seeding.linear_heads import fit_each
from facade.core import tree
from facade.data.samples import Samples
from facade.errors import DivergedError, ExperimentError
from facade.experiment.setup import set_up
from facade.learning.inputs import Inputs
from facade.learning.optimisers import SGD, Adam, Schedule
from facade.learning.stacked import MOST_WEIGHTS
from facade.testing.contract import distance, tiny
from facade.testing.driven import result_of
from learners import (
    CLASSES,
    NODES,
    OPTIMISERS,
    deep,
    holdings,
    learner,
    mlp,
    normalised,
    plain_loss,
    random_images,
    samples,
)

EXECUTORS = ["stacked", "looped"]
DTYPES = [torch.float32, torch.float64]


class Core(nn.Module):
    """A core that counts how often it runs."""

    runs = 0

    def __init__(self):
        super().__init__()
        self.layer = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Tanh())

    def forward(self, x):
        Core.runs += 1
        return self.layer(x)


class Methods(nn.Module):
    def __init__(self):
        super().__init__()
        self.core, self.head = Core(), nn.Linear(8, CLASSES)

    def features(self, x):
        return self.core(x) * 2

    def forward(self, x):
        return self.head(self.features(x))


class Trailing(nn.Module):
    def __init__(self):
        super().__init__()
        self.core, self.head = Core(), nn.Linear(8, CLASSES)

    def forward(self, x):
        return self.head(self.core(x).relu())


class Scaled(Trailing):
    """What the head returns is not what the model returns: this cannot be split."""

    def forward(self, x):
        return self.head(self.core(x)) * 3


def sequential():
    return nn.Sequential(OrderedDict(core=Core(), head=nn.Linear(8, CLASSES)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("executor", EXECUTORS)
def test_equal_heads_score_equal_losses(executor, dtype):
    made = learner(mlp, init="per-node", dtype=dtype, executor=executor)
    core, head = made.split(made.init(1, 0, np.arange(NODES)))
    losses = made.score(core, tree.stack([head] * 7, axis=1), samples("choose"))
    assert losses.shape == (NODES, 7)
    assert (losses == losses[:, :1]).all()
    assert len(set(losses[:, 0].tolist())) == NODES


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_heads_score_does_not_depend_on_the_other_heads(executor, dtype):
    made = learner(mlp, init="per-node", dtype=dtype, executor=executor)
    core, _ = made.split(made.init(1, 0, np.arange(NODES)))
    heads = tree.stack([made.split(made.init(1, j, np.arange(NODES)))[1] for j in range(4)], axis=1)
    losses = made.score(core, heads, samples("choose"))
    for j in range(4):
        alone = made.score(core, tree.map(lambda leaf, j=j: leaf[:, j : j + 1], heads), samples("choose"))
        assert torch.equal(alone, losses[:, j : j + 1])


@pytest.mark.parametrize(
    ("factory", "splits"),
    [(Methods, True), (sequential, True), (Trailing, True), (Scaled, False)],
    ids=["methods", "sequential", "trailing", "none"],
)
def test_features_are_computed_once_for_all_heads_where_the_model_can_be_split(factory, splits):
    made = learner(factory, executor="looped")
    assert made.executor.features_once == splits
    core, _ = made.split(made.init(1, 0, np.arange(NODES)))
    heads = tree.stack([made.split(made.init(1, j, np.arange(NODES)))[1] for j in range(3)], axis=1)
    Core.runs = 0
    losses = made.score(core, heads, samples("choose"))
    assert Core.runs == NODES * (1 if splits else 3)
    for node in range(NODES):
        drawn = samples("choose").of(slice(node, node + 1))[0]
        for j in range(3):
            params = tree.rows(core, node) | {name: leaf[node, j] for name, leaf in heads.items()}
            assert losses[node, j].item() == pytest.approx(plain_loss(factory(), params, drawn).item(), rel=1e-12)


def test_a_whole_model_may_be_the_head():
    made = learner(Trailing, head=("*",), executor="looped")
    core, head = made.split(made.init(1, 0, np.arange(NODES)))
    assert core == {}
    losses = made.score(core, tree.stack([head, head], axis=1), samples("choose"))
    assert torch.equal(losses[:, 0], losses[:, 1])


def batch_norm(place):
    """A model with batch normalisation in its core or in its head."""
    norm = nn.BatchNorm1d(8)
    layers = [nn.Flatten(), nn.Linear(16, 8), *([norm] if place == "core" else [])]
    head = nn.Sequential(*([norm] if place == "head" else []), nn.Linear(8, CLASSES))
    return nn.Sequential(OrderedDict(core=nn.Sequential(*layers), head=head))


def trained_by_hand(module, params, drawn, part, batch=4):
    """`part` trained by torch's own tools at the learner's rate, the rest frozen in evaluation mode."""
    module = module.double()
    module.load_state_dict(params, strict=False)
    module.eval()
    module.get_submodule(part).train()
    update = torch.optim.SGD(module.get_submodule(part).parameters(), 0.1)
    x = normalised(drawn.x)
    for start in range(0, len(drawn), batch):
        update.zero_grad()
        functional.cross_entropy(module(x[start : start + batch]), drawn.y[start : start + batch]).backward()
        update.step()
    return {name: value.detach() for name, value in module.state_dict().items() if name in params}


@pytest.mark.parametrize("only", ["core", "head"])
@pytest.mark.parametrize("place", ["core", "head"])
def test_a_frozen_part_runs_in_evaluation_mode_and_stays_as_it_is(only, place):
    made = learner(lambda: batch_norm(place))
    params = made.fit(p := made.init(1, 0, np.arange(NODES)), made.memory(p), samples()).params
    fitted = made.fit(params, made.memory(params), samples(round=1), only=only)
    core, head = made.split(params)
    frozen, part = (core, head) if only == "head" else (head, core)
    assert all(torch.equal(fitted.params[name], leaf) for name, leaf in frozen.items())
    assert all((fitted.params[name] != leaf).any() for name, leaf in part.items())
    for node in range(NODES):
        drawn = samples(round=1).of(slice(node, node + 1))[0]
        expected = trained_by_hand(batch_norm(place), tree.rows(params, node), drawn, only)
        assert distance(tree.rows(fitted.params, node), expected) < 1e-12


@pytest.mark.parametrize("only", [None, "core", "head"])
@pytest.mark.parametrize("executor", EXECUTORS)
def test_every_kind_of_layer_is_trained_as_torch_would(only, executor):
    made = learner(deep, init="per-node", executor=executor)
    params = made.init(1, 0, np.arange(NODES))
    fitted = made.fit(params, made.memory(params), samples(), only=only)
    for node in range(NODES):
        drawn = samples().of(slice(node, node + 1))[0]
        expected = trained_by_hand(deep(), tree.rows(params, node), drawn, only or "")
        assert distance(tree.rows(fitted.params, node), expected) < 1e-12


class NormedHead(nn.Module):
    """A head found by running the model, with batch normalisation in it."""

    def __init__(self):
        super().__init__()
        self.core, self.head = Core(), nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, CLASSES))

    def forward(self, x):
        return self.head(self.core(x))


def test_statistics_of_a_trailing_head_are_updated_once_a_step():
    made = learner(NormedHead)
    params = made.init(1, 0, np.arange(1))
    fitted = made.fit(params, made.memory(params), Samples(holdings().only(np.arange(1)), 7, "train", 0, 12), "head")
    drawn = samples().of(slice(0, 1))[0]
    expected = trained_by_hand(NormedHead(), tree.rows(params, 0), drawn, "head")
    assert distance(tree.rows(fitted.params, 0), expected) < 1e-12


@pytest.mark.parametrize("optimiser", OPTIMISERS)
@pytest.mark.parametrize("executor", EXECUTORS)
def test_training_equals_torchs_own_optimisers_over_several_rounds(optimiser, executor):
    ours, theirs = OPTIMISERS[optimiser]
    made = learner(mlp, optimiser=ours, init="per-node", executor=executor)
    params = made.init(1, 0, np.arange(NODES))
    memory = made.memory(params)
    modules = [made.module(tree.rows(params, node)) for node in range(NODES)]
    updates = [theirs(module.parameters()) for module in modules]
    for round in range(3):
        fitted = made.fit(params, memory, samples(round=round))
        params, memory = fitted.params, fitted.memory
        for node, (module, update) in enumerate(zip(modules, updates, strict=True)):
            drawn = samples(round=round).of(slice(node, node + 1))[0]
            x = normalised(drawn.x)
            losses = []
            for step in range(3):
                part = slice(4 * step, 4 * step + 4)
                update.zero_grad()
                loss = functional.cross_entropy(module(x[part]), drawn.y[part])
                loss.backward()
                update.step()
                losses.append(loss.item())
            assert fitted.loss[node].item() == pytest.approx(np.mean(losses), rel=1e-12)
            expected = {name: weight.detach() for name, weight in module.named_parameters()}
            assert distance(tree.rows(params, node), expected) < 1e-11


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("kind", [SGD, Adam])
def test_a_round_is_trained_at_its_scheduled_rate(kind, executor):
    fitted = []
    for optimiser in (kind(0.1, Schedule("step", every=2, factor=0.5)), kind(0.05)):
        made = learner(mlp, optimiser=optimiser, executor=executor)
        params = made.init(1, 0, np.arange(NODES))
        fitted.append(made.fit(params, made.memory(params), samples(round=2)).params)
    assert all(torch.equal(leaf, fitted[1][name]) for name, leaf in fitted[0].items())


def test_the_optimiser_is_the_one_that_training_describes():
    settings = ("momentum=0.9", "nesterov=true", "weight_decay=0.01", "lr=0.3", "rounds=4")
    settings += ("schedule=step", "schedule_every=3", "schedule_factor=0.5")
    setup = set_up(tiny("el", *(f"training.{setting}" for setting in settings)))
    assert setup.learner.training.optimiser == SGD(0.3, Schedule("step", 4, 3, 0.5), 0.01, 0.9, nesterov=True)


def test_no_operation_is_split_over_threads():
    made, before = learner(mlp), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert made.in_threads(lambda _: torch.get_num_threads(), [slice(0, 1)]) == [1]
    finally:
        torch.set_num_threads(before)


def test_work_on_its_threads_may_use_the_learner_itself():
    made = learner(mlp)
    inner = [[10, 11], [20, 21], [30, 31]]  # more pieces than threads: who waited for a free one would wait for ever
    assert made.in_threads(lambda ten: made.in_threads(lambda one: ten + one, [0, 1]), [10, 20, 30]) == inner


@pytest.mark.parametrize("executor", EXECUTORS)
def test_training_leaves_its_inputs_as_they_were(executor):
    made = learner(mlp, optimiser=SGD(0.1, momentum=0.9), executor=executor)
    params = made.init(1, 0, np.arange(NODES))
    memory = made.memory(params)
    before = tree.digest({"params": params, "memory": memory}, NODES)
    made.fit(params, memory, samples())
    assert tree.digest({"params": params, "memory": memory}, NODES) == before


@pytest.mark.parametrize("executor", EXECUTORS)
def test_comparisons_are_the_losses_of_heard_models_on_own_samples(executor):
    made = learner(mlp, init="per-node", executor=executor)
    pool = made.init(1, 0, np.arange(4))
    receiver, sender = torch.tensor([0, 0, 1, 4]), torch.tensor([1, 3, 0, 2])
    losses = made.compare(pool, receiver, sender, samples("compare"))
    for loss, r, s in zip(losses, receiver.tolist(), sender.tolist(), strict=True):
        drawn = samples("compare").of(slice(r, r + 1))[0]
        assert loss.item() == pytest.approx(plain_loss(mlp(), tree.rows(pool, s), drawn).item(), rel=1e-12)
    assert made.compare(pool, receiver[:0], sender[:0], samples("compare")).shape == (0,)


def test_all_samples_of_a_node_are_normalised_a_part_at_a_time(monkeypatch):
    made = learner(mlp, executor="looped")
    core, head = made.split(made.init(1, 0, np.arange(NODES)))
    everything = Samples(holdings(), 7, "all", 0, None)
    whole, sizes = Inputs.prepare, []
    monkeypatch.setattr(Inputs, "prepare", lambda self, x, *rest: sizes.append(len(x)) or whole(self, x, *rest))
    monkeypatch.setattr("facade.learning.executor._CACHED_VALUES", 8 * 16)
    made.score(core, tree.map(lambda leaf: leaf.unsqueeze(1), head), everything)
    fit_each(made, core, head, everything, 1)
    assert sizes == [8, 4] * 2 * NODES  # of twelve


@pytest.mark.parametrize("executor", EXECUTORS)
def test_an_examination_counts_true_class_by_predicted_class(executor):
    made = learner(mlp, init="per-node", executor=executor)
    params = made.init(1, 0, np.arange(3))
    draw = torch.Generator().manual_seed(5)
    tests = [random_images(count, draw) for count in (2100, 7)]
    test_of = np.array([1, 0, 1])
    examined = made.examine(params, tests, test_of)
    for node in range(3):
        test = tests[test_of[node]]
        module = made.module(tree.rows(params, node))
        assert not module.training
        with torch.no_grad():
            logits = module(made.inputs.prepare(test.x, torch.float64))
        counts = torch.zeros(CLASSES, CLASSES, dtype=torch.int64)
        for truth, guess in zip(test.y.tolist(), logits.argmax(1).tolist(), strict=True):
            counts[truth, guess] += 1
        assert torch.equal(examined.confusion[node], counts)
        loss = functional.cross_entropy(logits, test.y).item()
        assert examined.loss[node].item() == pytest.approx(loss, rel=1e-12)


def test_bytes_become_normalised_numbers_and_floats_stay():
    inputs = Inputs((2, 1, 1), [0.5, 0.25], [0.5, 0.125])
    x = torch.tensor([[0, 255], [51, 102]], dtype=torch.uint8).view(2, 2, 1, 1)
    expected = torch.tensor([[-1.0, 6.0], [-0.6, 1.2]], dtype=torch.float64)
    torch.testing.assert_close(inputs.prepare(x, torch.float64).view(2, 2), expected)
    floats = torch.tensor([[0.3, -7.0]], dtype=torch.float64)
    assert torch.equal(inputs.prepare(floats, torch.float64), floats)


def test_models_start_equal_or_each_by_itself_and_the_global_generator_is_left_alone():
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    common = learner(mlp).init(1, 0, np.arange(3))["head.weight"]
    single = learner(mlp, init="per-node").init(1, 0, np.arange(3))["head.weight"]
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(common[0], common[2])
    assert len({tuple(weight.flatten().tolist()) for weight in single}) == 3
    alone = learner(mlp, init="per-node").init(1, 0, np.array([2]))["head.weight"]
    assert torch.equal(alone[0], single[2])
    assert not torch.equal(learner(mlp).init(1, 1, np.arange(1))["head.weight"][0], common[0])


def test_the_executor_follows_from_the_model():
    assert learner(mlp).executor.name == "stacked"
    assert learner(mlp, executor="looped").executor.name == "looped"
    assert learner(Trailing).executor.name == "looped"
    wide = MOST_WEIGHTS // 16
    assert learner(lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, wide)), head=("*",)).executor.name == "looped"
    with pytest.raises(ExperimentError, match=r"runtime.executor = 'stacked' needs an nn.Sequential of .*use 'auto'"):
        learner(Trailing, executor="stacked")


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_diverging_run_stops_and_names_round_node_and_learning_rate(executor):
    sentence = r"training diverged in round \d+ at node \d: loss \S+, learning rate 1e\+20; try a smaller training.lr"
    with pytest.raises(DivergedError, match=sentence):
        result_of(tiny("el", "training.lr=1e20", f"runtime.executor={executor}"))


def test_divergence_is_blamed_on_the_node_where_it_happened():
    made = learner(mlp)
    params = made.init(1, 0, np.arange(NODES))
    params["head.bias"][3, 0] = torch.inf
    with pytest.raises(DivergedError, match=r"in round 5 at node 3: loss nan, learning rate 0\.1"):
        made.fit(params, made.memory(params), samples(round=4))
