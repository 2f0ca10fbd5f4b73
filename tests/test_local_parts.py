"""Parts of a model that stay at their node."""

from collections import OrderedDict

import pytest
import torch
from torch import nn

from facade import ExperimentError
from facade.core import tree
from facade.core.local_parts import finished, mixed, published
from facade.core.messages import EVERYONE
from facade.experiment.setup import set_up
from facade.learning import models
from facade.learning.running_statistics import estimate, running_statistics
from facade.testing.contract import CHECKS, assert_same, tiny
from facade.testing.driven import driven, inbox_of, one_turn, prepared, result_of
from learners import CLASSES, learner, samples

NORMED = ("model.name=contract.own:Normed", "data.clusters=4:2", "training.rounds=3", "evaluation.every=3")
STATISTICS = {"body.1.running_mean", "body.1.running_var"}
SENDERS = ["el", "dpsgd", "dac", "deprl", "facade", "ifca", "contract.own:Reluctant"]


def normed_head():
    """A head in which there is a batch normalisation."""
    head = nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, CLASSES))
    return nn.Sequential(OrderedDict(core=nn.Sequential(nn.Flatten(), nn.Linear(16, 16)), head=head))


def message_names(experiment):
    posts = driven(prepared(experiment)).posts
    return [{path.rsplit("/")[-1] for path in tree.flatten(post.outbox)} for (post,) in posts]


@pytest.mark.parametrize("name", SENDERS)
def test_running_statistics_are_in_no_message_unless_they_are_to_be_averaged(name):
    assert all("body.1.weight" in sent and not STATISTICS & sent for sent in message_names(tiny(name, *NORMED)))
    assert all(sent > STATISTICS for sent in message_names(tiny(name, *NORMED, "model.local=[]")))


@pytest.mark.parametrize("name", SENDERS)
def test_mixing_leaves_local_parts_as_they_were_and_averages_the_rest(name):
    setup = prepared(tiny(name, *NORMED, 'model.local=["body.1"]', "algorithm.all_reduce=true"))
    algorithm, turn = setup.algorithm, one_turn(setup, 0)
    trained = algorithm.local(turn, algorithm.init(turn.shard))
    before, message = algorithm.model(trained), published(algorithm, turn, trained)
    states = [
        mixed(algorithm, turn, trained, inbox_of(turn.shard, message, algorithm.wanted(turn, trained))),
        finished(algorithm, turn, trained, inbox_of(turn.shard, message, EVERYONE)),
    ]
    for after in map(algorithm.model, states):
        assert after.keys() == before.keys()
        assert all(torch.equal(after[name], before[name]) for name in before if name.startswith("body.1."))
        assert not torch.equal(after["body.0.weight"], before["body.0.weight"])
    assert [tree.flatten(state).keys() for state in states] == [tree.flatten(trained).keys()] * 2


def test_a_node_hears_fewer_bytes_by_as_much_as_stays():
    one, other = (result_of(tiny("el", *NORMED, f"model.local={local}")).rows for local in ("[]", '["body.1"]'))
    heard = [(row["bytes"], less["bytes"]) for row, less in zip(one, other, strict=True) if row["kind"] == "round"]
    assert {most - least for most, least in heard} == {4 * 4 * 4 * 4}  # peers, tensors, channels, bytes of a float


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", ["el", "facade"])
def test_models_with_local_parts_keep_the_contract(name, check):
    check(tiny(name, *NORMED, 'model.local=["body.1"]'))


@pytest.mark.filterwarnings("ignore:network.loss")  # of trouble in which seeds may not be agreed on
@pytest.mark.filterwarnings("ignore:this model cannot be split before its head")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_seeding_with_a_head_of_several_parts_of_which_one_is_local_keeps_the_contract(check):
    parts = ('model.head=["body.1", "head"]', "algorithm.seeding=farthest", "algorithm.warmup=1")
    check(tiny("facade", *NORMED[:2], *parts, "training.rounds=16", "evaluation.every=16"))


def test_an_entry_that_is_called_as_a_local_tensor_is_sent_all_the_same(monkeypatch):
    setup = prepared(tiny("dac", *NORMED))
    monkeypatch.setattr(setup.learner, "names", setup.learner.names | {"scores"})
    monkeypatch.setattr(setup.learner, "local_names", setup.learner.local_names | {"scores"})
    turn = one_turn(setup, 0)
    assert published(setup.algorithm, turn, setup.algorithm.init(turn.shard)).keys() == {"model", "scores"}


def test_models_that_were_heard_are_compared_with_the_receivers_own_local_parts():
    one = learner(normed_head, local=("head.1",))
    params = one.fit(one.init(1, 0, samples().nodes), {}, samples()).params
    own = {name: leaf for name, leaf in params.items() if name in one.local_names}
    heard = {name: leaf for name, leaf in params.items() if name not in own}
    losses = one.with_local(own).compare(heard, torch.tensor([0, 3]), torch.tensor([3, 0]), samples("compare"))
    for place, (receiver, sender) in enumerate([(0, 3), (3, 0)]):
        model = one.module(tree.rows(own, receiver) | tree.rows(heard, sender))
        drawn = samples("compare").of(slice(receiver, receiver + 1))
        logits = model(one.inputs.prepare(drawn.x[0], one.dtype))
        assert losses[place].item() == pytest.approx(nn.functional.cross_entropy(logits, drawn.y[0]).item(), rel=1e-12)


def test_a_local_part_of_the_head_is_one_for_all_heads_and_trained_with_the_core():
    one = learner(normed_head, local=("head.1",))
    params = one.init(1, 0, samples().nodes)
    core, head = one.split(params)
    assert {name for name in core if name.startswith("head.")} == one.local_names
    assert head.keys() == {"head.0.weight", "head.0.bias", "head.3.weight", "head.3.bias"}
    after = one.fit(params, {}, samples(), only="head").params
    assert {name for name in params if not torch.equal(params[name], after[name])} == head.keys()
    heads = tree.stack([head, one.split(after)[1]], axis=1)
    whole = [core | head, core | one.split(after)[1]]
    expected = [one.compare(model, torch.arange(5), torch.arange(5), samples()) for model in whole]
    assert torch.allclose(one.score(core, heads, samples()), torch.stack(expected, 1), rtol=1e-12)


def test_a_head_of_several_parts_is_linear_if_but_one_linear_layer_of_it_is_not_local():
    assert not learner(normed_head, head=("head.1", "head.3")).head_is_linear
    assert learner(normed_head, head=("head.1", "head.3"), local=("head.1",)).head_is_linear
    assert not learner(normed_head, head=("head.3",), local=("head.3.bias",)).head_is_linear


@pytest.mark.parametrize("algorithm", ["el", "facade"])
def test_a_model_without_running_statistics_is_trained_as_if_nothing_were_local(algorithm):
    usual, averaged = tiny(algorithm), tiny(algorithm, "model.local=[]")
    assert usual.hash == averaged.hash
    assert_same(result_of(usual), result_of(averaged))


def test_which_models_have_no_running_statistics_is_known():
    without = {name for name, make in models.MODELS.items() if not running_statistics(make((1, 8, 8), 10))}
    assert without == models.WITHOUT_RUNNING_STATISTICS


def test_statistics_are_estimated_from_inputs_alone():
    module = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(0.5), nn.Linear(3, 2)).double()
    first, second = torch.randn(2, 6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 4 + 1
    weights = {name: weight.clone() for name, weight in module.named_parameters()}
    module[0].running_mean.fill_(100)
    estimate(module, [first, second])
    assert torch.allclose(module[0].running_mean, (first.mean(0) + second.mean(0)) / 2)
    assert torch.allclose(module[0].running_var, (first.var(0) + second.var(0)) / 2)
    assert all(torch.equal(weight, weights[name]) for name, weight in module.named_parameters())
    assert (module.training, module[0].training, module[0].momentum) == (False, False, 0.1)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            ('model.local=["body.9"]',),
            r"model\.local = 'body\.9' names no parameter; the model has: body\.0\.weight[^;]*$",
        ),
        (('model.local=["body", "head"]',), r"covers the whole model, so that nothing is shared; name a part of it"),
        (('model.local=["*"]',), r"set algorithm\.name = 'local'"),
        (
            ('model.local=["head", "running-statistics"]',),
            r"covers the whole head, so that there are no heads to choose",
        ),
    ],
)
def test_local_parts_that_make_no_sense_are_refused(settings, sentence):
    with pytest.raises(ExperimentError, match=sentence):
        set_up(tiny("facade", *NORMED, *settings))


def test_running_statistics_that_are_averaged_beside_local_parts_are_warned_of():
    with pytest.warns(UserWarning, match=r"leaves 'body\.1\.running_mean' to be averaged.*add 'running-statistics'"):
        set_up(tiny("el", *NORMED, 'model.local=["head"]'))
