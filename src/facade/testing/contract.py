"""What every algorithm must keep, each check a function of an experiment; an AssertionError says what was broken.

They hold for any algorithm and any model, also a user's own (`package.module:Attribute`):

    import pytest
    from facade.testing import contract

    @pytest.mark.parametrize("check", contract.CHECKS)
    def test_mine_keeps_the_contract(check):
        check(contract.tiny("my_package.mine:MyAlgorithm", "model.name=my_package.nets:Net"))
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from facade.core import tree
from facade.core.local_parts import finished, mixed, published
from facade.core.messages import EVERYONE, Edges, Post
from facade.experiment.config import Experiment
from facade.runs.result import Result
from facade.testing.driven import driven, inbox_of, one_turn, prepared, result_of


def tiny(name: str, *settings: str) -> Experiment:
    """A run of a few rounds on 5 + 3 nodes of digits; keys of other algorithms are ignored. Settings, as on the
    command line, have the last word."""
    return Experiment.of(
        {
            "name": "tiny",
            "seed": 3,
            "data": {"source": "digits", "clusters": "5:3"},
            "algorithm": {"name": name, "warmup": 1, "seeding": "none"},
            "topology": {"degree": 4},
            "training": {"rounds": 4, "steps": 2, "batch": 4, "lr": 0.1},
            "evaluation": {"every": 2},
            "runtime": {"threads": 1},
        },
        settings,
    )


def assert_same(one: Result, other: Result) -> None:
    """Equal to the bit: rows, deployed models, states."""
    assert list(one.rows) == list(other.rows)
    assert one.summary["model_sha256"] == other.summary["model_sha256"]
    assert one.summary["state_sha256"] == other.summary["state_sha256"]


NOBODY = Edges(torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64))


def check_repeatable(experiment: Experiment) -> None:
    """The same run twice gives the same rows and states."""
    assert_same(result_of(experiment), result_of(experiment))


def check_shard_invariant(experiment: Experiment) -> None:
    """However nodes are divided over processes, rows and states are the same to the bit."""
    whole = result_of(experiment.with_("runtime.shards=1"))
    for count in (2, 5, experiment.n):
        assert_same(whole, result_of(experiment.with_(f"runtime.shards={count}")))


def check_thread_independent(experiment: Experiment) -> None:
    """However many threads compute a run, rows and states are the same to the bit."""
    alone = result_of(experiment.with_("runtime.threads=1"))
    for count in (2, 3):
        assert_same(alone, result_of(experiment.with_(f"runtime.threads={count}")))


def check_resumable(experiment: Experiment) -> None:
    """From the state of any post, a new run ends in the same state and makes the remaining rows."""
    setup = prepared(experiment)
    whole = driven(setup)
    end = tree.digest(whole.state, experiment.n)
    for number, posts in enumerate(whole.posts):
        kept = [(post.round, _reloaded(post.state)) for post in posts]
        resumed = driven(prepared(experiment), kept)
        assert tree.digest(resumed.state, experiment.n) == end, f"resumed at exchange {number}"
        assert resumed.rows() == whole.rows(after=number), f"resumed at exchange {number}"


def _reloaded(state: Any) -> Any:
    """The state as a checkpoint would give it back: leaves by path, new storage."""
    return tree.unflatten({path: leaf.clone() for path, leaf in tree.flatten(state).items()}, state)


def check_pure(experiment: Experiment) -> None:
    """No method of an algorithm changes what it was given, and nothing published changes later."""
    setup = prepared(experiment)
    watched: Any = _Watched(setup.algorithm)
    prints: list[Any] = []
    replaced = dataclasses.replace(setup, algorithm=watched)
    run = driven(replaced, watch=lambda posts: prints.append([_published(post) for post in posts]))
    assert {"init", "local", "message", "mix"} <= watched.called
    assert ("finish" in watched.called) == setup.plan.all_reduce
    assert [[_published(post) for post in posts] for posts in run.posts] == prints


def _published(post: Post) -> Any:
    """A print of what a shard hands over."""
    return _print((post.outbox, post.state, post.wanted))


class _Watched:
    """An algorithm whose every call is checked to leave its arguments as they were."""

    def __init__(self, algorithm: Any) -> None:
        self._algorithm = algorithm
        self.called: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self._algorithm, name)
        if not callable(inner):
            return inner

        def call(*arguments: Any) -> Any:
            before = _print(arguments)
            result = inner(*arguments)
            assert _print(arguments) == before, f"{name} changed what it was given"
            self.called.add(name)
            return result

        return call


def _print(thing: Any) -> Any:
    """All tensors and arrays in a thing, as hashes."""
    if isinstance(thing, Tensor):
        return hashlib.sha256(thing.contiguous().numpy().tobytes()).hexdigest()
    if isinstance(thing, np.ndarray):
        return hashlib.sha256(thing.tobytes()).hexdigest()
    if isinstance(thing, dict):
        return {key: _print(value) for key, value in thing.items()}
    if isinstance(thing, (list, tuple)):
        return [_print(part) for part in thing]
    if dataclasses.is_dataclass(thing):
        return [_print(getattr(thing, field.name)) for field in dataclasses.fields(thing)]
    return None


def check_survives_loss(experiment: Experiment) -> None:
    """With half of the messages lost and nodes offline the run ends with finite numbers; the state
    of an offline node stays, and it hears nothing."""
    setup = prepared(experiment.with_("network.loss=0.5", "network.offline=0.3"))
    run = driven(setup)
    rows = run.rows()
    json.dumps(rows, allow_nan=False)
    assert all(math.isfinite(row["loss"]) for row in rows if row["kind"] != "round")
    assert all(leaf.isfinite().all() for leaf in setup.algorithm.model(run.state).values())
    everybody, away = np.arange(experiment.n), 0
    states = [tree.digests(state, experiment.n) for state in run.states()]
    for round in range(experiment.training.rounds):
        online = setup.plan.network.online(experiment.seed, round, everybody)
        heard = [row["bytes"] for row in rows if row["kind"] == "round" and row["round"] == round + 1]
        for node in everybody[~online]:
            assert states[round + 1][node] == states[round][node]
            assert heard[node] == 0
            away += 1
        for node in everybody[online]:
            assert states[round + 1][node] != states[round][node]
    assert 0 < away < experiment.n * experiment.training.rounds


def check_equal_states_stay_equal(experiment: Experiment) -> None:
    """Where all nodes are in the same state, mixing leaves every model as it is, up to rounding."""
    setup = prepared(experiment)
    algorithm = setup.algorithm
    for round in (0, experiment.training.rounds - 1):
        turn = one_turn(setup, round)
        trained = algorithm.local(turn, algorithm.init(turn.shard))
        state = tree.map(lambda leaf: leaf[:1].expand_as(leaf).clone(), trained)
        message = published(algorithm, turn, state)
        heard = inbox_of(turn.shard, message, algorithm.wanted(turn, state))
        results = [mixed(algorithm, turn, state, heard)]
        if setup.plan.all_reduce:
            results.append(finished(algorithm, turn, state, inbox_of(turn.shard, message, EVERYONE)))
        for result in results:
            for before, after in zip(algorithm.models(state), algorithm.models(result), strict=True):
                assert distance(after, before) < 8 * torch.finfo(setup.learner.dtype).eps


def check_no_messages_is_local_training(experiment: Experiment) -> None:
    """Where nothing arrives, mixing leaves every model exactly as local training made it."""
    setup = prepared(experiment)
    algorithm = setup.algorithm
    state = algorithm.init(one_turn(setup, 0).shard)
    for round in range(experiment.training.rounds):
        turn = one_turn(setup, round)
        trained = algorithm.local(turn, state)
        heard = inbox_of(turn.shard, published(algorithm, turn, trained), NOBODY)
        state = mixed(algorithm, turn, trained, heard)
        for before, after in zip(algorithm.models(trained), algorithm.models(state), strict=True):
            assert before.keys() == after.keys()
            assert all(torch.equal(before[name], after[name]) for name in before)


def check_counts_bytes(experiment: Experiment) -> None:
    """A round's bytes are those of the messages that arrived at the node."""
    for settings in [(), ("network.loss=0.3", "network.offline=0.2")]:
        setup = prepared(experiment.with_(*settings))
        run = driven(setup)
        expected = {}
        for posts in run.posts:
            for shard, post in zip(setup.shards(), posts, strict=True):
                size = sum(leaf[0].numel() * leaf.element_size() for leaf in tree.flatten(post.outbox).values())
                assert size == tree.row_bytes(post.outbox)
                for place, node in enumerate(shard.nodes.tolist()):
                    arrived = shard.n - 1 if post.wanted is EVERYONE else int((post.wanted.receiver == place).sum())
                    expected[post.round, node] = arrived * size
        rounds = experiment.training.rounds
        for row in run.rows():
            if row["kind"] == "round":
                assert row["bytes"] == expected[row["round"] - 1, row["node"]]
            elif row["kind"] == "final":
                assert row["bytes"] == expected.get((rounds, row["node"]), 0)


def check_message_schema(experiment: Experiment) -> None:
    """Names, dtypes and shapes of a message are the same in every round and for every shard."""
    for settings in [("runtime.shards=1",), ("runtime.shards=2", "network.loss=0.5", "network.offline=0.3")]:
        schemas = [
            {path: (leaf.dtype, leaf.shape[1:]) for path, leaf in tree.flatten(post.outbox).items()}
            for posts in driven(prepared(experiment.with_(*settings))).posts
            for post in posts
        ]
        assert all(schema == schemas[0] for schema in schemas)


def check_declares_members(experiment: Experiment) -> None:
    """What a state keeps per member of the network, or names members by, is declared: where members come and go, it
    can be put in their new order, and nothing else depends on how many there are."""
    first, *others = experiment.data.sizes
    clusters = ":".join(map(str, [first + 2, *others]))
    larger = experiment.with_(f"data.clusters={clusters}", f"training.rounds={2 * experiment.training.rounds}")
    setups = [prepared(each) for each in (experiment, larger)]
    small, large = (tree.flatten(s.algorithm.init(s.shard(np.arange(1)))) for s in setups)
    algorithm = setups[0].algorithm
    assert small.keys() == large.keys()
    for path, leaf in small.items():
        axis = algorithm.member_axes.get(path)
        assert axis is not None or leaf.shape == large[path].shape, f"{path} depends on n and is not in member_axes"
        assert axis is None or (leaf.shape[axis], large[path].shape[axis]) == (experiment.n, larger.n), path
    for path in small.keys() & algorithm.member_numbers:
        assert small[path].dtype == torch.int64, f"{path} names members by other than whole numbers"
        assert int(small[path].min()) >= -1, f"{path} names members below -1, which is nobody"


def check_learns(experiment: Experiment) -> None:
    """Accuracy ends more than half the way from chance to perfect."""
    result = result_of(experiment)
    chance = 1 / len(result.rows[-1]["confusion"])
    assert result.summary["all"] > (1 + chance) / 2


def check_executors_agree(experiment: Experiment, tolerance: float = 1e-12) -> None:
    """Batched and one by one, models stay together to rounding in every round."""
    setups = [
        prepared(experiment.with_("runtime.dtype=float64", f"runtime.executor={e}")) for e in ("stacked", "looped")
    ]
    assert [setup.learner.executor.name for setup in setups] == ["stacked", "looped"]
    stacked, looped = (driven(setup).states() for setup in setups)
    for one, other in zip(stacked, looped, strict=True):
        assert distance(setups[0].algorithm.model(one), setups[1].algorithm.model(other)) < tolerance


def distance(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    """The largest difference between two stacks of models, relative to each weight tensor's size."""
    assert one.keys() == other.keys()
    return max(
        float((one[name] - other[name]).abs().max() / other[name].abs().max().clamp(min=1e-30)) for name in other
    )


CHECKS: list[Callable[[Experiment], None]] = [
    check_repeatable,
    check_shard_invariant,
    check_thread_independent,
    check_resumable,
    check_pure,
    check_survives_loss,
    check_equal_states_stay_equal,
    check_no_messages_is_local_training,
    check_counts_bytes,
    check_message_schema,
    check_declares_members,
]
"""All that take any experiment as it is."""
