"""What attackers send, again in plain loops over lists."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from facade.attacks import ATTACKS
from facade.attacks.attack import Scene
from facade.attacks.heads import HIGHEST
from facade.attacks.poisoned_data import TARGET, triggered, triggered_test
from facade.attacks.weights import BELOW_THE_LIMIT
from facade.core import tree
from facade.data.samples import Labelled

NODES, BAD = 6, (1, 4)


def scene(final=False, seed=5, **more):
    """Six nodes about to publish a core, and one of two heads."""
    g = torch.Generator().manual_seed(2)

    def drawn(*shape):
        return torch.randn(NODES, *shape, generator=g, dtype=torch.float64)

    messages = {"core": {"w": drawn(3, 2), "b": drawn(2)}, "head": {"v": drawn(4)}}
    messages |= {"choice": torch.tensor([0, 0, 1, 1, 1, 0])} | more
    algorithm = SimpleNamespace(entries_without_weights=frozenset({"bid"}), heads_compared=2)
    algorithm.message = lambda turn, state: {**messages, "core": state}
    turn = SimpleNamespace(shard=SimpleNamespace(nodes=np.arange(NODES), seed=seed, n=NODES), round=3)
    bad = torch.tensor([node in BAD for node in range(NODES)])
    return Scene(turn, algorithm, None, messages, bad, final)


def sent(kind, at, memory=None):
    """What the attackers send, as trees of lists by node, and what they would have sent."""
    lie = ATTACKS[kind]().sent(at, memory)
    return [(_listed(lie, node), _listed(at.messages, node)) for node in BAD]


def _listed(message, node):
    return {path: leaf[node].flatten().tolist() for path, leaf in tree.flatten(message).items()}


WEIGHTS = ("core/w", "core/b", "head/v")


@pytest.mark.parametrize(
    ("kind", "factor"), [("sign-flip", -1), ("scale", BELOW_THE_LIMIT), ("final-only", 1), ("silent", 1)]
)
def test_weights_are_sent_times_a_number_and_nothing_else_is_changed(kind, factor):
    for lie, true in sent(kind, scene()):
        assert all(lie[path] == [factor * x for x in true[path]] for path in WEIGHTS)
        assert lie["choice"] == true["choice"]


def test_the_final_exchange_alone_is_ruined():
    for lie, true in sent("final-only", scene(final=True)):
        assert all(lie[path] == [-BELOW_THE_LIMIT * x for x in true[path]] for path in WEIGHTS)


def test_noise_has_many_times_the_norm_and_is_addressed_by_round_and_node():
    at = scene()
    (one, true), (two, _) = sent("noise", at)
    for part in (("core/w", "core/b"), ("head/v",)):
        norms = [math.sqrt(sum(x * x for path in part for x in message[path])) for message in (one, true)]
        assert norms[0] == pytest.approx(BELOW_THE_LIMIT * norms[1], rel=1e-12)
    assert one["core/w"] != two["core/w"]
    assert sent("noise", at)[0][0] == one
    assert sent("noise", scene(seed=6))[0][0] != one
    at.turn.round = 4
    assert sent("noise", at)[0][0] != one


def of_honest(at, path, node):
    """The numbers of honest nodes that are averaged with a node's: of heads, those of its own number."""
    leaf, choice = tree.flatten(at.messages)[path], at.messages["choice"]
    rows = [i for i in range(NODES) if i not in BAD and (path[:4] == "core" or choice[i] == choice[node])]
    return [[float(leaf[i].flatten()[place]) for i in rows] for place in range(leaf[0].numel())]


@pytest.mark.parametrize("kind", ["alie", "ipm"])
def test_those_who_see_all_send_what_is_a_little_off_or_the_mean_turned_round(kind):
    at = scene()
    for node, (lie, _) in zip(BAD, sent(kind, at), strict=True):
        for path in WEIGHTS:
            for value, numbers in zip(lie[path], of_honest(at, path, node), strict=True):
                mean = sum(numbers) / len(numbers)
                spread = math.sqrt(sum((x - mean) ** 2 for x in numbers) / len(numbers))
                assert abs(value - (mean - 1.5 * spread if kind == "alie" else -0.5 * mean)) < 1e-12


def test_a_head_that_no_honest_node_uses_is_sent_as_it_is():
    at = scene(choice=torch.tensor([0, 1, 0, 0, 1, 0]))
    assert all(lie["head/v"] == true["head/v"] for lie, true in sent("alie", at))


def test_mimics_send_what_the_first_honest_node_sends():
    at = scene()
    assert all(lie == _listed(at.messages, 0) for lie, _ in sent("mimic", at))


def test_a_false_head_is_turned_round_under_the_other_number():
    for lie, true in sent("false-head", scene()):
        assert lie["head/v"] == [-x for x in true["head/v"]]
        assert lie["choice"] == [1 - true["choice"][0]]
        assert lie["core/w"] == true["core/w"]


def bid(origin):
    return {
        "score": torch.full((NODES,), 0.5, dtype=torch.float64),
        "origin": torch.tensor(origin),
        "heard": torch.ones(NODES, 4, dtype=torch.float64),
    }


def test_a_lying_bid_is_the_highest_as_long_as_heads_are_sought():
    at = scene(bid=bid([-1, -1, -1, -1, -2, -1]))
    (lie, true), (later, after) = sent("lying-bid", at)
    assert lie["bid/score"] == [HIGHEST]
    assert lie["bid/origin"] == [BAD[0]]
    norms = [math.sqrt(sum(x * x for x in message["head/v"])) for message in (lie, true)]
    assert norms[0] == pytest.approx(norms[1])
    assert lie["head/v"] != true["head/v"]
    assert later == after, "the survey of node 4 is over"


def test_what_is_stale_is_what_attackers_had_when_they_began():
    at, old = scene(), {"w": torch.zeros(NODES, 3, 2), "b": torch.ones(NODES, 2)}
    attack = ATTACKS["stale"]()
    assert attack.begin(old) is old
    assert attack.remember(at._replace(state="now"), old) == "now"
    assert all(lie["core/w"] == [0.0] * 6 and lie["core/b"] == [1.0] * 2 for lie, _ in sent("stale", at, old))


def test_labels_are_turned_round():
    samples = Labelled(torch.zeros(5, 1), torch.tensor([0, 1, 2, 3, 9]))
    assert ATTACKS["label-flip"]().poisoned(samples).y.tolist() == [9, 8, 7, 6, 0]


def test_every_other_sample_of_a_backdoor_has_a_bright_corner_and_the_target_for_a_label():
    x = torch.arange(4 * 8 * 8, dtype=torch.uint8).view(4, 1, 8, 8) % 100
    samples = Labelled(x.clone(), torch.tensor([3, 4, 5, 6]))
    false = ATTACKS["backdoor"]().poisoned(samples)
    for image in range(4):
        for row in range(8):
            for column in range(8):
                bright = image % 2 == 0 and row >= 6 and column >= 6
                assert false.x[image, 0, row, column] == (255 if bright else x[image, 0, row, column])
    assert false.y.tolist() == [TARGET, 4, TARGET, 6]
    assert torch.equal(samples.x, x), "what a node really holds stays as it is"


def test_a_backdoor_is_tested_on_what_is_not_of_its_class():
    test = triggered_test(Labelled(torch.zeros(3, 4), torch.tensor([TARGET, 1, 2])))
    assert test.y.tolist() == [1, 2]
    assert triggered(torch.tensor([[1.0, 5.0, 2.0]])).tolist() == [[1.0, 5.0, 5.0]]
